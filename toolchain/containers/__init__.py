"""Compile, run, verify and measure inside a container: the bundled compiler, one job, archives in and out."""

"""Recipes: checked data about vendor stacks and components, and what a typed name stands for."""

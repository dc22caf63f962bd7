"""What launches, and what stands in the place of one, take beside their work."""

LAUNCH_SECONDS = 3e-6
"""From the end of one launch to full speed in the next one."""

BESIDE_WORK_SECONDS = 2.2e-6
"""What a launch of a recorded run takes beside its work: measured on an H100 (decisions 40 and 42)."""

CLUSTER_SECONDS = 0.6e-6
"""Two barriers of a cluster and the latency of reading another block's memory: an estimate, not measured."""

LAST_BLOCK_SECONDS = 1.9e-6
"""What the others wrote becomes visible, the last block is found, and its first reads come: three trips to
the last cache. An estimate, not measured."""

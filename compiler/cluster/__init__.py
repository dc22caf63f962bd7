"""A Dask cluster (`distributed`): its address and encryption, a connection, its scheduler and workers."""

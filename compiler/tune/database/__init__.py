"""What was measured, kept in one sqlite file: workloads, records, and the queries over them."""

"""The content-addressed store for large values: files, workspaces, submissions, evidence, batches."""

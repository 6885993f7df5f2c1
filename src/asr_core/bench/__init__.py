"""Speed, errors and memory of a model, measured together: in this process, or on a server as its callers see it."""

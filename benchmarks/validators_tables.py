def write_tables(records, docs):
    pass

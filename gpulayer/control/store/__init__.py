"""The database of a home: tables, migrations, and the functions that read and write them inside one transaction."""

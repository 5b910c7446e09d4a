"""`pgtail inspect`: messages field by field, beside their bytes."""

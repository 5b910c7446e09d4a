"""The library, which `pgtail` offers under its own name: see pgtail(3)."""

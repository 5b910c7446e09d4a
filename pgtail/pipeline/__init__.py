"""Scanner or decoder, assembler, filter, output: in order, in bounded memory."""

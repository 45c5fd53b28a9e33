package policy

// NewSmallCompiler is NewCompiler with room for so many bytes.
func NewSmallCompiler(most int64) *Compiler { return newCompiler(most) }

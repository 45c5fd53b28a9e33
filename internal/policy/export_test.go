package policy

// NewSmallCompiler is NewCompiler with a budget of so many bytes.
func NewSmallCompiler(most int64) *Compiler { return newCompiler(most) }

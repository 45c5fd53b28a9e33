package policy_test

import "github.com/extsvc/svc/internal/policy"

// compiler is shared by all tests, as it is by all principals of a service.
var compiler = policy.NewCompiler()

func evaluate(s policy.Subject, r policy.Request) policy.Result {
	return compiler.Compile(s).Explain(r)
}

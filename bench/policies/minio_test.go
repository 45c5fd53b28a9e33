package policies_test

import minio "github.com/minio/pkg/v3/policy"

// minioPolicy is the merged policies. MinIO merges at every request; here it is done before. A
// statement is a statement, a bank is a bucket, "::*" at its end is a wildcard.
type minioPolicy struct{ minio.Policy }

func newMinio(w *workload) (engine, error) {
	var policies []minio.Policy
	for _, statements := range w.policies {
		p := minio.Policy{Version: minio.DefaultVersion}
		for _, s := range statements {
			p.Statements = append(p.Statements, minioStatement(s))
		}
		policies = append(policies, p)
	}
	return minioPolicy{minio.MergePolicies(policies...)}, nil
}

func minioStatement(s statement) minio.Statement {
	effect, actions, banks := minio.Effect(minio.Allow), minio.NewActionSet(), minio.NewResourceSet()
	if s.Effect == deny {
		effect = minio.Deny
	}
	for _, a := range spell(s.Actions) {
		actions.Add(minio.Action(a))
	}
	for _, b := range s.Banks {
		banks.Add(minio.NewResource(b))
	}
	return minio.NewStatement("", effect, actions, banks, nil)
}

func (p minioPolicy) Decide(action, bank string) bool {
	return p.IsAllowed(minio.Args{Action: minio.Action(action), BucketName: bank})
}

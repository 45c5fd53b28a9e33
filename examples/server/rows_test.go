package main

import (
	"flag"
	"testing"
)

// A name of a flag says whether a value follows, which may begin with a dash.
func TestValuesWithDashes(t *testing.T) {
	takes := map[string]bool{}
	for _, of := range subcommands {
		of.flags().VisitAll(func(f *flag.Flag) {
			if was, seen := takes[f.Name]; seen && was == isSwitch(f) {
				t.Errorf("-%s takes a value in some commands only", f.Name)
			}
			takes[f.Name] = !isSwitch(f)
		})
	}
}

// A key that cannot be one is a mistake of its variable.
func TestWrongKeyInTheEnvironment(t *testing.T) {
	for _, key := range []string{"", "two words", "svcu_x\n", "ü"} {
		t.Setenv("SVC_KEY", key)
		exits(t, 2, "SVC_KEY", "user", "list", "-url", "http://127.0.0.1:1/ext/svc")
	}
}

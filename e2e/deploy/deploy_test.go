// Package deploy checks the files with which examples/server is deployed, by the formats' own readers.
package deploy

import (
	"bytes"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/server/deploy/"

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(folder + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// compose reads a file as docker compose does.
func compose(t *testing.T, text []byte) (*types.Project, error) {
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  t.TempDir(),
		ConfigFiles: []types.ConfigFile{{Filename: "compose.yaml", Content: text}},
		Environment: types.Mapping{"POSTGRES_PASSWORD": "secret"},
	}, func(o *loader.Options) { o.SetProjectName("svc", true) })
}

func TestCompose(t *testing.T) {
	text := read(t, "compose.yaml")
	project, err := compose(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if got := project.Services["svc"].Environment["PGPASSWORD"]; got == nil || *got != "secret" {
		t.Errorf("the server has no password: %v", got)
	}
	server := project.Services["svc"]
	var mounts []string
	for _, volume := range server.Volumes {
		mounts = append(mounts, volume.Target)
	}
	keysAreMounted(t, server.Command, mounts)
	if _, err := compose(t, bytes.ReplaceAll(text, []byte("cap_drop"), []byte("cap_drops"))); err == nil {
		t.Error("a wrong key is not found")
	}
}

// keysAreMounted fails unless a server that PostgreSQL is given to has its keys file in a volume: without
// the flag it would be in the container's own folder, which goes with it and is read-only.
func keysAreMounted(t *testing.T, args, mounts []string) {
	t.Helper()
	at := slices.Index(args, "-keys") + 1
	if at == 0 || at == len(args) || !slices.Contains(mounts, path.Dir(args[at])) {
		t.Errorf("the keys file of %q is in none of %q", args, mounts)
	}
}

func TestKubernetes(t *testing.T) {
	manifest := read(t, "kubernetes.yaml")
	kinds := map[string]func() any{
		"Deployment":          func() any { return &apps.Deployment{} },
		"Service":             func() any { return &core.Service{} },
		"PodDisruptionBudget": func() any { return &policy.PodDisruptionBudget{} },
	}
	parse := func(text string) error {
		var of struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &of); err != nil {
			return err
		}
		make, known := kinds[of.Kind]
		if !known {
			t.Fatalf("kind %q is not known here", of.Kind)
		}
		return yaml.UnmarshalStrict([]byte(text), make())
	}
	for text := range strings.SplitSeq(string(manifest), "\n---\n") {
		if err := parse(text); err != nil {
			t.Error(err)
		}
		if deployment, is := kinds["Deployment"]().(*apps.Deployment); is && yaml.Unmarshal([]byte(text), deployment) == nil {
			for _, server := range deployment.Spec.Template.Spec.Containers {
				var mounts []string
				for _, volume := range server.VolumeMounts {
					mounts = append(mounts, volume.MountPath)
				}
				keysAreMounted(t, server.Args, mounts)
			}
		}
		if err := parse(strings.Replace(text, "selector:", "selectors:", 1)); err == nil {
			t.Errorf("a wrong key is not found in\n%s", text)
		}
	}
}

package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	programs  = rootModule + "/examples" // a module that nobody imports
	program   = programs + "/server"
	cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
	apidiff   = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e"
)

// stripped are the flags of go for programs that no debugger reads: all that is built here.
const stripped = "-trimpath -gcflags=all=-dwarf=false"

var platforms = []string{"linux/amd64", "linux/arm64", "darwin/arm64", "windows/amd64"}

// build installs the program from the proxy, as anyone can, for each platform.
func (r *release) build(ctx context.Context) error {
	env, err := r.hostEnv(ctx)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		env := append(env, "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0", "GOBIN=")
		install := command(r.scratch, env, "go", "install", "-ldflags=-s -w", program+"@"+r.version)
		if _, err := install.output(ctx); err != nil {
			return err
		}
		ending := ""
		if system == "windows" {
			ending = ".exe"
		}
		folder := filepath.Join(r.scratch, "gopath", "bin")
		if platform != runtime.GOOS+"/"+runtime.GOARCH {
			folder = filepath.Join(folder, system+"_"+processor)
		}
		binary, err := os.ReadFile(filepath.Join(folder, "server"+ending))
		if err != nil {
			return err
		}
		name := "server-" + system + "-" + processor + ending
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(binary), name)
		program := filepath.Join(r.scratch, "bin", name)
		if err := errors.Join(write(program, binary), os.Chmod(program, 0o755)); err != nil {
			return err
		}
	}
	file := filepath.Join(r.scratch, "bin", "SHA256SUMS")
	if err := write(file, []byte(sums.String())); err != nil {
		return err
	}
	return r.writeMaterials(ctx)
}

// writeMaterials lists the modules in the program, in the format of CycloneDX.
func (r *release) writeMaterials(ctx context.Context) error {
	tool, err := r.tool(ctx, cyclonedx)
	if err != nil {
		return err
	}
	file := filepath.Join(r.scratch, "bin", "sbom.cdx.json")
	_, err = command(r.scratch, nil, tool, "bin", "-json", "-noserial", "-output", file,
		filepath.Join(r.scratch, "bin", "server-linux-amd64")).output(ctx)
	if err != nil {
		return err
	}
	return withoutTime(file)
}

// withoutTime removes when and by what build of the tool the bill was written: the same release has
// the same bytes.
func withoutTime(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return err
	}
	if about, ok := bill["metadata"].(map[string]any); ok {
		delete(about, "timestamp")
		delete(about, "tools")
	}
	if text, err = json.MarshalIndent(bill, "", "  "); err != nil {
		return err
	}
	return write(file, append(text, '\n'))
}

// hostEnv is the environment of a host that gets the modules from the proxy. Its module cache is
// its own: a version that was rehearsed before had other bytes.
func (r *release) hostEnv(ctx context.Context) ([]string, error) {
	env := command(r.root, nil, "go", "env", "GOPROXY", "GOMODCACHE", "GONOSUMDB")
	usual, err := env.output(ctx)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(usual), "\n")
	folders := []string{
		filepath.Join(r.scratch, "proxy"), filepath.Join(r.out, "proxy"),
		filepath.Join(lines[1], "cache", "download"),
	}
	proxies := ""
	for _, folder := range folders {
		// go asks no other proxy where a folder is missing.
		if _, err := os.Stat(folder); err == nil {
			proxies += "file://" + folder + ","
		}
	}
	return []string{
		"GOWORK=off",
		"GOFLAGS=-modcacherw -mod=mod " + stripped,
		"GOPATH=" + filepath.Join(r.scratch, "gopath"),
		"GOMODCACHE=" + filepath.Join(r.scratch, "modules"),
		"GOPROXY=" + proxies + lines[0],
		"GONOSUMDB=" + strings.Trim(rootModule+","+lines[2], ","),
	}, nil
}

// tool installs a tool, named with its version, and returns its path.
func (r *release) tool(ctx context.Context, name string) (string, error) {
	folder := filepath.Join(r.scratch, "tools")
	env := []string{"GOWORK=off", "GOFLAGS=" + stripped, "GOBIN=" + folder}
	_, err := command(r.scratch, env, "go", "install", name).output(ctx)
	name, _, _ = strings.Cut(filepath.Base(name), "@")
	return filepath.Join(folder, name), err
}

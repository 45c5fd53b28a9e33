// Command site writes the documentation of svc as a static site with search:
//
//	go -C docs/site run . FOLDER
//
// A relative FOLDER is below docs/site, where Go runs the program.
//
// All links of the site are relative and it loads nothing from elsewhere. So it works from a disk
// and below any path of a server.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", "../..", "the clone whose documentation is written")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: site [-root CLONE] FOLDER")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*root, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// write writes the site of a clone into a folder. Other files of the folder stay.
func write(root, folder string) error {
	files, err := build(os.DirFS(root))
	if err != nil {
		return err
	}
	for name, text := range files {
		name = filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

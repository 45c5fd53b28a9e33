package marketplace

import (
	"net/url"
	"slices"
	"strings"
)

// rawFiles returns the base address of a repository's raw files. path is the repository's page on
// GitHub or GitLab; for any other address rawFiles returns nil. Without a ref, rawFiles uses HEAD,
// the default branch. A ref can hold slashes: rawFiles copies the ref and the directory unchanged.
func rawFiles(o origin, path string) *url.URL {
	if o.scheme != "https" || o.port != "443" {
		return nil
	}
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if slices.Contains(segments, "") {
		return nil
	}
	switch o.host {
	case "github.com":
		return rawGitHub(segments)
	case "gitlab.com":
		return rawGitLab(segments)
	}
	return nil
}

// rawGitHub accepts OWNER/REPO and OWNER/REPO/tree/REF/DIR.
func rawGitHub(segments []string) *url.URL {
	if len(segments) < 2 {
		return nil
	}
	repo, rest := segments[:2], segments[2:]
	at := []string{"HEAD"}
	if len(rest) >= 2 && rest[0] == "tree" {
		at = rest[1:]
	} else if len(rest) > 0 {
		return nil
	}
	return repoURL("raw.githubusercontent.com", repo, at)
}

// rawGitLab accepts GROUP/…/PROJECT and GROUP/…/PROJECT/-/tree/REF/DIR.
func rawGitLab(segments []string) *url.URL {
	project, at := segments, []string{"-", "raw", "HEAD"}
	if dash := slices.Index(segments, "-"); dash >= 0 {
		rest := segments[dash+1:]
		if len(rest) < 2 || rest[0] != "tree" {
			return nil
		}
		project, at = segments[:dash], append([]string{"-", "raw"}, rest[1:]...)
	}
	if len(project) < 2 {
		return nil
	}
	return repoURL("gitlab.com", project, at)
}

// repoURL joins a repository and a path in it. The last segment of the repository may end in
// ".git".
func repoURL(host string, repo, at []string) *url.URL {
	path := strings.TrimSuffix(strings.Join(repo, "/"), ".git") + "/" + strings.Join(at, "/")
	return &url.URL{Scheme: "https", Host: host, Path: "/" + path}
}

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
	switch strings.TrimPrefix(o.host, "www.") {
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

// notDirectory returns what is wrong with a usable address that is visibly not the directory of a
// catalogue: it names the catalogue itself, or the page of a file at GitHub or GitLab. The rules
// are for registrations only, so a source that was registered before goes on.
func notDirectory(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	path := strings.Trim(u.Path, "/")
	segments := strings.Split(path, "/")
	last := segments[len(segments)-1]
	host := strings.TrimPrefix(strings.ToLower(strings.TrimRight(u.Hostname(), ".")), "www.")
	shows := func(page string) bool {
		return page == "blob" || page == "edit" || page == "blame" || page == "commits"
	}
	switch {
	case host == "github.com" && len(segments) > 2 && shows(segments[2]):
		return "is the page of a file: it must be the repository," +
			" or a directory of it like https://github.com/OWNER/REPO/tree/REF/DIR"
	case host == "gitlab.com" && isGitLabPage(segments, shows):
		return "is the page of a file: it must be the project," +
			" or a directory of it like https://gitlab.com/GROUP/PROJECT/-/tree/REF/DIR"
	case last == catalogFile, last == signatureFile:
		return "must be the directory of the catalogue, without " + last + " at its end"
	}
	return ""
}

func isGitLabPage(segments []string, shows func(page string) bool) bool {
	dash := slices.Index(segments, "-")
	return dash >= 0 && dash+1 < len(segments) && shows(segments[dash+1])
}

package marketplace

import (
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/extsvc/svc"
)

// place is the directory of a source, on the web or in a file system.
type place struct {
	from    svc.Upstream
	base    *url.URL // its path has no slash at the end
	homes   []origin // may see the token
	files   fs.FS    // nil: on the web
	dir     string   // in files: "." or a path that [fs.ValidPath] accepts
	trusted bool     // AllowOrigins and AllowCIDRs hold
}

// url returns the address of a file of the source. name is a decoded path from [relativePath].
func (p place) url(name string) *url.URL {
	u := *p.base
	escaped := (&url.URL{Path: name}).EscapedPath()
	u.Path, u.RawPath = p.base.Path+"/"+name, p.base.EscapedPath()+"/"+escaped
	return &u
}

// named returns the address of a file of the source, as the end of an error's message. It is where
// the Client asks first: it holds no credentials, and nothing of a redirect. It is "" unless the
// fault shows that the address may be wrong.
func (p place) named(name string, f *fault) string {
	if !f.misplaced {
		return ""
	}
	if p.files != nil {
		return " (" + clip(p.from.URL, 300) + ": " + clip(p.path(name), 300) + ")"
	}
	return " (" + clip(p.url(name).String(), 600) + ")"
}

// file returns the request for a file of a source on the web, of at most limit bytes.
func (p place) file(name string, limit int) webFile {
	return webFile{
		url: p.url(name), token: p.from.Token, homes: p.homes, limit: limit, trusted: p.trusted,
	}
}

func (p place) path(name string) string { return path.Join(p.dir, name) }

// trusts reports whether AllowOrigins and AllowCIDRs hold for a source.
func (c *Client) trusts(source svc.SourceKey) bool {
	return source.Scope != svc.ScopePersonal || c.allowPersonal
}

// place returns the place that the address of a source leads to, or the problem with the address.
func (c *Client) place(address string, trusted bool) (place, string) {
	u, problem := parseAddress(address)
	if problem != "" {
		return place{}, problem
	}
	if u.RawQuery != "" || u.ForceQuery {
		return place{}, "must have no query"
	}
	if strings.Contains(address, "#") {
		return place{}, "must have no fragment"
	}
	dir, problem := decodedPath(u.EscapedPath())
	if problem != "" {
		return place{}, problem
	}
	if u.Scheme == "fs" {
		return c.filePlace(u.Host, dir)
	}
	own, problem := c.webOrigin(u, trusted)
	if problem != "" {
		return place{}, problem
	}
	base := &url.URL{Scheme: own.scheme, Host: own.hostport(), Path: strings.TrimRight(u.Path, "/")}
	base.RawPath = strings.TrimRight(u.EscapedPath(), "/")
	at := place{base: base, homes: []origin{own}, trusted: trusted}
	if raw := rawFiles(own, base.Path); raw != nil {
		at.base = raw
		at.homes = append(at.homes, origin{scheme: raw.Scheme, host: raw.Host, port: own.port})
	}
	return at, ""
}

func (c *Client) filePlace(name, dir string) (place, string) {
	files := c.files[name]
	if files == nil {
		return place{}, "names a file system that this server does not have"
	}
	if dir = strings.Trim(dir, "/"); dir == "" {
		dir = "."
	}
	if !fs.ValidPath(dir) {
		return place{}, "must have no empty segment in its path"
	}
	return place{files: files, dir: dir}, ""
}

// parseAddress parses an absolute address. The address must have a host and a scheme of sources:
// https, http or fs.
func parseAddress(address string) (*url.URL, string) {
	const want = "must be an absolute address like https://example.com/templates"
	if !utf8.ValidString(address) || strings.ContainsFunc(address, notInAddress) {
		return nil, "must hold no spaces, backslashes or control characters"
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Host == "":
		return nil, want
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "fs":
		return nil, want
	case u.User != nil:
		return nil, "must hold no user name or password"
	}
	return u, ""
}

func notInAddress(r rune) bool { return r == '\\' || unicode.IsSpace(r) || !unicode.IsGraphic(r) }

// isLookalike reports whether a server could read a character as one of . / \ % and ; or as text
// that holds one of them. Unicode NFKC, the code pages of Windows and the human eye confuse
// characters of three classes only: symbols (∕ ⁄ ⧸ ℅ ¥), other punctuation (／ ＼ ․ ﹒ ％ 。) and
// other numbers (⒈ ½).
func isLookalike(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.S, unicode.Po, unicode.No)
}

// decodedPath decodes an escaped path once. It refuses a path that a server could read as a way out
// of a directory, also a server that decodes twice.
func decodedPath(escaped string) (decoded, problem string) {
	decoded, err := url.PathUnescape(escaped)
	switch {
	case err != nil || !utf8.ValidString(decoded):
		return "", "is not validly percent-encoded"
	case strings.Contains(decoded, "%"):
		return "", "must hold no encoded percent sign"
	case strings.Count(decoded, "/") != strings.Count(escaped, "/"):
		return "", "must hold no encoded slash"
	case strings.Contains(decoded, `\`):
		return "", "must hold no backslash"
	case strings.ContainsFunc(decoded, unicode.IsControl):
		return "", "must hold no control characters"
	case strings.ContainsFunc(decoded, isLookalike):
		return "", `must hold no symbols beyond ASCII, which may be look-alikes of . / \ % and ;`
	}
	for segment := range strings.SplitSeq(decoded, "/") {
		if isDots(segment) {
			return "", "must hold no . or .. segment"
		}
	}
	return decoded, ""
}

// isDots reports whether a server could read segment as "." or "..". Some servers drop parameters
// (";x"), spaces and dots at the end, or invisible characters.
func isDots(segment string) bool {
	name, _, _ := strings.Cut(segment, ";")
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '.' && unicode.IsGraphic(r) && !unicode.IsSpace(r)
	})
}

// encodesControl reports whether an address holds an encoded control character. A server that
// decodes it carelessly reads the rest as another line.
func encodesControl(u *url.URL) bool {
	for _, escaped := range strings.Split(u.EscapedPath()+"?"+u.RawQuery, "%")[1:] {
		c, err := strconv.ParseUint(escaped[:min(2, len(escaped))], 16, 8)
		if err == nil && (c < ' ' || c == 0x7f) {
			return true
		}
	}
	return false
}

// maxReference is the length limit of a manifest_file in bytes. A request holds the path in memory
// several times.
const maxReference = 2048

// relativePath returns the decoded path of a manifest_file relative to its source, or the problem
// with it. It drops a "./" at the front.
func relativePath(reference string) (name, problem string) {
	reference = strings.TrimPrefix(reference, "./")
	switch {
	case len(reference) > maxReference:
		return "", "must be at most " + strconv.Itoa(maxReference) + " bytes"
	case strings.HasPrefix(reference, "/"):
		return "", "must not begin with a slash"
	case strings.ContainsAny(reference, "?#"):
		return "", "must have no query and no fragment"
	}
	name, problem = decodedPath(reference)
	if problem != "" {
		return "", problem
	}
	first, _, _ := strings.Cut(name, "/")
	switch {
	case strings.Contains(first, ":"):
		return "", "must be a relative path, not an address"
	case strings.ContainsAny(name, "?#"):
		return "", "must have no query and no fragment"
	case !fs.ValidPath(name) || name == ".":
		return "", "must have no empty segment"
	}
	return name, ""
}

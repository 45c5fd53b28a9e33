package marketplace_test

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
	"github.com/extsvc/svc/marketplace"
)

// FuzzCheckURL: no parser reads the host of an accepted address as a forbidden address.
func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"https://example.com/a", "https://2130706433", "https://0x7f.1", "https://0.0.0b0", "https://0x.0", "https://[::ffff:127.0.0.1]:443/", "https://127.0.0.1.", "https://a@b/",
		"https://%31", "https://１２７.1/", "https://localhost.", "fs://local/a", "http://example.com", "https://[fe80::1%25lo]/", "https://8.8.8.8:1/%2e%2e"} {
		f.Add(seed)
	}
	client := newClient(f, marketplace.Config{})
	f.Fuzz(func(t *testing.T, address string) {
		if client.CheckURL(address) != nil {
			return
		}
		u, err := url.Parse(address)
		expect.Holds(t, err == nil && u.Scheme == "https" && u.User == nil && u.RawQuery == "" && u.Fragment == "", address)
		checkHost(t, u.Hostname())
		dialled, err := url.Parse(client.URL(address, "templates.json"))
		expect.Holds(t, err == nil && strings.HasSuffix(dialled.Path, "/templates.json"), address, dialled, err)
		checkHost(t, dialled.Hostname())
		expect.Holds(t, !strings.Contains(dialled.Path+"/", "/../"), address, dialled)
	})
}

func checkHost(t *testing.T, host string) {
	t.Helper()
	host = strings.ToLower(strings.TrimRight(host, "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.ContainsAny(host, "%/\\@ ") {
		t.Fatalf("host %q is accepted", host)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addr = loosely(host)
	}
	embedded := addr.Is6() && (addr.Is4In6() || slices.ContainsFunc([]string{"::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"},
		func(prefix string) bool { return netip.MustParsePrefix(prefix).Contains(addr) }))
	if addr.IsValid() && (embedded || addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsMulticast() || addr.IsUnspecified() ||
		netip.MustParsePrefix("100.64.0.0/10").Contains(addr) || netip.MustParsePrefix("0.0.0.0/8").Contains(addr) || netip.MustParsePrefix("240.0.0.0/4").Contains(addr)) {
		t.Fatalf("host %q, %v, is accepted", host, addr)
	}
}

// loosely parses an IPv4 address as inet_aton does.
func loosely(host string) netip.Addr {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}
	}
	var sum uint64
	for i, part := range parts {
		base := 10
		if digits, hexadecimal := strings.CutPrefix(part, "0x"); hexadecimal {
			part, base = "0"+digits, 16
		} else if strings.HasPrefix(part, "0") {
			base = 8
		}
		n, err := strconv.ParseUint(part, base, 32)
		if err != nil {
			return netip.Addr{}
		}
		if i == len(parts)-1 {
			sum += n
		} else {
			sum += n << (24 - 8*i)
		}
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// FuzzConfined: an accepted reference stays under its base, also after one and two decodings.
func FuzzConfined(f *testing.F) {
	for _, seed := range escapes() {
		f.Add(seed)
	}
	for _, seed := range []string{"a.json", "./a/b.json", "a%20b/c.json", "a;x=1/b:c"} {
		f.Add(seed)
	}
	client := newClient(f, marketplace.Config{})
	base := &url.URL{Scheme: "https", Host: "one.example", Path: "/base/dir/"}
	f.Fuzz(func(t *testing.T, reference string) {
		name, problem := marketplace.Confined(reference)
		if problem != "" {
			return
		}
		under := func(p string) {
			t.Helper()
			p = strings.NewReplacer(`\`, "/", "\x00", "/../../../..", "．", ".", "﹒", ".", "․", ".", "‥", "..", "︰", "..", "／", "/", "＼", "/", "﹨", "/",
				"∕", "/", "⁄", "/", "⧸", "/", "∖", "/", "╱", "/", "¥", "/", "。", ".", "·", ".",
				"％2e", ".", "﹪2e", ".", "\u00a0", "", "\u200b", "").Replace(p)
			if !strings.HasPrefix(path.Clean("/base/dir/"+p), "/base/dir/") || strings.HasPrefix(p, "/") {
				t.Fatalf("%q leaves its base as %q", reference, p)
			}
		}
		under(reference)
		under(name)
		once, err := url.PathUnescape(reference)
		expect.Holds(t, err == nil, reference)
		under(once)
		if twice, err := url.PathUnescape(once); err == nil {
			under(twice)
		}
		if resolved, err := base.Parse(reference); err == nil && (resolved.Host != base.Host || !strings.HasPrefix(resolved.Path, base.Path)) {
			t.Fatalf("%q resolves to %s", reference, resolved)
		}
		asked, err := url.Parse(client.URL("https://one.example/base/dir", name))
		if err != nil || asked.Host != base.Host || asked.Path != "/base/dir/"+name || asked.RawQuery != "" || asked.Fragment != "" {
			t.Fatalf("%q is asked for as %v, %v", reference, asked, err)
		}
	})
}

// FuzzCatalog: the parser never panics, loses no entry, and agrees with encoding/json.
func FuzzCatalog(f *testing.F) {
	for _, seed := range []string{oneEntry, twoEntries, `{}`, `[]`, `{"templates":null}`, `{"templates":[null,{},[],"x",1,true,{"id":"\u0061","name":"A\"","manifest":{"a":[1,{"b":"}]"}]}}]}`,
		`{"a":"\\","templates":[{"id":"a","name":"b","tags":["a]","\\"],"manifest_file":"x"},{"id":"a"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		catalog, err := marketplace.ParseCatalog(data)
		if err != nil {
			return
		}
		var top map[string]json.RawMessage
		var want []json.RawMessage
		expect.Holds(t, json.Unmarshal(data, &top) == nil && json.Unmarshal(top["templates"], &want) == nil, data)
		if len(catalog.Entries)+len(catalog.Problems) != len(want) {
			t.Fatalf("%q: %d entries and %d problems of %d", data, len(catalog.Entries), len(catalog.Problems), len(want))
		}
		for _, entry := range catalog.Entries {
			checkEntry(t, entry, want[entry.Index])
		}
	})
}

func checkEntry(t *testing.T, got svc.CatalogEntry, data []byte) {
	t.Helper()
	var fields map[string]json.RawMessage
	var id, name string
	var tags []string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["id"], &id) != nil || json.Unmarshal(fields["name"], &name) != nil {
		t.Fatalf("%q is accepted", data)
	}
	if raw, ok := fields["tags"]; ok && json.Unmarshal(raw, &tags) != nil {
		t.Fatalf("%q is accepted", data)
	}
	expect.Holds(t, got.ID == id && got.Content.Name == name && slices.Equal(got.Content.Tags, tags), data, got)
	if got.ManifestFile == "" && compact(t, fields["manifest"]) != string(got.Content.Manifest) {
		t.Fatalf("%q has the manifest %s", data, got.Content.Manifest)
	}
}

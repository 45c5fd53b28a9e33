package adminpage

// Posts returns the paths after the prefix that take a form, the sign-in first.
func Posts() []string {
	paths := []string{signInPath}
	for _, r := range routes {
		if r.method == "POST" {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// Gets returns the paths after the prefix that show a page. The sign-in, the style and the script need no caller.
func Gets() []string {
	var paths []string
	for _, r := range routes {
		if r.method == "GET" && r.path != "" {
			paths = append(paths, r.path)
		}
	}
	return paths
}

const MaxBearer = maxBearer

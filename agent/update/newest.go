package update

import "path/filepath"

// newest is the newest version that has run here.
type newest struct {
	Version string `json:"version"`
}

// Note remembers that a version runs with a state directory, for WentBack. It is called under the directory's lock.
func Note(state, version string) error {
	s := storeIn(state)
	var n newest
	err := readJSON(filepath.Join(s.dir, "newest.json"), &n)
	if err == nil && n.Version != "" && newer(version, n.Version) != "" {
		return nil
	}
	if _, ok := number(version); !ok {
		return nil // no release: nothing is older or newer than it
	}
	return s.write("newest.json", newest{version})
}

// WentBack is the newest version that has run with a state directory, where that is a newer one than this; else "".
func WentBack(state, version string) string {
	var n newest
	if err := readJSON(filepath.Join(storeIn(state).dir, "newest.json"), &n); err != nil || n.Version == "" {
		return ""
	}
	if _, ok := number(version); !ok || newer(n.Version, version) != "" {
		return ""
	}
	return n.Version
}

package update

import "path/filepath"

// newest is the newest version that has run here.
type newest struct {
	Version string `json:"version"`
}

// Note records that a version runs with a state directory, for WentBack. Callers hold the directory's lock.
func Note(state, version string) error {
	s := storeIn(state)
	var n newest
	err := readJSON(filepath.Join(s.dir, "newest.json"), &n)
	if err == nil && n.Version != "" && newer(version, n.Version) != "" {
		return nil
	}
	if _, ok := number(version); !ok {
		return nil // not a release: no version is older or newer
	}
	return s.write("newest.json", newest{version})
}

// WentBack returns the newest version that has run with a state directory if it is newer than this version, else "".
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

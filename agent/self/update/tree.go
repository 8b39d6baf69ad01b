package update

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Tree is the folder in which versions of the agent are installed, each in a folder of its own:
//
//	Root/versions/VERSION/muster-agent, muster-guest, muster-mount
//	Root/current -> versions/VERSION, the one that has proven itself
type Tree struct{ Root string }

const (
	versionsDir = "versions"
	currentLink = "current"
	unfinished  = ".new-" // an incomplete version
)

// Of returns the tree that a program is installed in, from its path with links resolved, and the version that its
// folder names.
func Of(program string) (t Tree, version string, ok bool) {
	dir := filepath.Dir(program)
	version, versions := filepath.Base(dir), filepath.Dir(dir)
	if filepath.Base(versions) != versionsDir || !namePattern.MatchString(version) {
		return Tree{}, "", false
	}
	return Tree{filepath.Dir(versions)}, version, true
}

func (t Tree) versions() string        { return filepath.Join(t.Root, versionsDir) }
func (t Tree) folder(v string) string  { return filepath.Join(t.versions(), v) }
func (t Tree) Program(v string) string { return filepath.Join(t.folder(v), agentFile) }
func (t Tree) installed(v string) bool { _, err := os.Stat(t.Program(v)); return err == nil }
func (t Tree) currentPath() string     { return filepath.Join(t.Root, currentLink) }
func (t Tree) target(v string) string  { return filepath.Join(versionsDir, v) }

// Current returns the version that has proven itself.
func (t Tree) Current() (string, error) {
	link, err := os.Readlink(t.currentPath())
	if err != nil {
		return "", fmt.Errorf("read the current version: %w", err)
	}
	if filepath.Dir(link) == versionsDir {
		return filepath.Base(link), nil
	}
	return "", fmt.Errorf("%s points to %s, not to one of the versions", t.currentPath(), link)
}

// add installs a version: fill puts its programs into a folder, which is renamed to the version when it is complete. A
// version that is already installed is not changed.
func (t Tree) add(version string, fill func(dir string) error) error {
	if t.installed(version) {
		return nil
	}
	dir, err := os.MkdirTemp(t.versions(), unfinished)
	if err != nil {
		return err
	}
	if err = fill(dir); err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err == nil {
		err = os.Rename(dir, t.folder(version))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	return syncDir(t.versions())
}

// promote atomically makes a version the current one.
func (t Tree) promote(version string) error {
	next := t.currentPath() + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(t.target(version), next); err != nil {
		return err
	}
	if err := os.Rename(next, t.currentPath()); err != nil {
		return err
	}
	return syncDir(t.Root)
}

// prune removes the remains of killed installations and every version except those named. Containers that have a
// removed guest mounted keep it: a mount refers to the file, not to its name.
func (t Tree) prune(keep ...string) error {
	entries, err := os.ReadDir(t.versions())
	if err != nil {
		return err
	}
	for _, e := range entries {
		kept := false
		for _, k := range keep {
			kept = kept || e.Name() == k
		}
		if !kept && (namePattern.MatchString(e.Name()) || strings.HasPrefix(e.Name(), unfinished)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(t.versions(), e.Name())))
		}
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

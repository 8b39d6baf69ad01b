package volume

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cgroups is where the machine's control groups are mounted.
var cgroups = "/sys/fs/cgroup"

// A group is the control group of a node's container, by which all of its processes are stopped at once.
type group struct {
	File   string `json:"file"`   // written to freeze and thaw
	Frozen string `json:"frozen"` // what is written to freeze
	Thawed string `json:"thawed"`
	State  string `json:"state"` // the file that shows whether all processes have stopped
	Proof  string `json:"proof"` // its line that says so
}

// groupOf returns the control group of a process. It refuses a group that contains this process, or all of the
// machine.
func groupOf(pid int) (group, error) {
	theirs, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return group{}, fmt.Errorf("find the control group of a node: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return group{}, err
	}
	if path, ok := inGroup(theirs, "freezer"); ok {
		if err := apart(own, "freezer", path); err != nil {
			return group{}, err
		}
		dir := filepath.Join(cgroups, "freezer", path)
		return group{File: filepath.Join(dir, "freezer.state"), Frozen: "FROZEN", Thawed: "THAWED",
			State: filepath.Join(dir, "freezer.state"), Proof: "FROZEN"}, nil
	}
	path, ok := inGroup(theirs, "")
	if !ok {
		return group{}, errors.New("a node has no control group")
	}
	if err := apart(own, "", path); err != nil {
		return group{}, err
	}
	for _, mount := range []string{cgroups, filepath.Join(cgroups, "unified")} {
		dir := filepath.Join(mount, path)
		if _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); err == nil {
			return group{File: filepath.Join(dir, "cgroup.freeze"), Frozen: "1", Thawed: "0",
				State: filepath.Join(dir, "cgroup.events"), Proof: "frozen 1"}, nil
		}
	}
	return group{}, fmt.Errorf("the control group %s cannot be stopped", path)
}

// inGroup returns the path of a controller's group from the text of /proc/PID/cgroup; "" is the unified hierarchy.
func inGroup(text []byte, controller string) (string, bool) {
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, path, ok := strings.Cut(rest, ":")
		for name := range strings.SplitSeq(names, ",") {
			if ok && name == controller {
				return path, true
			}
		}
	}
	return "", false
}

func apart(own []byte, controller, path string) error {
	mine, _ := inGroup(own, controller)
	if path == "/" || strings.Contains(path, "..") || mine == path || strings.HasPrefix(mine, path+"/") {
		return fmt.Errorf("the control group %s is not the node's own", path)
	}
	return nil
}

// stopped reports whether all processes of the group have stopped.
func (g group) stopped() (bool, error) {
	b, err := os.ReadFile(g.State)
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(b) {
		if string(bytes.TrimSpace(line)) == g.Proof {
			return true, nil
		}
	}
	return false, nil
}

// thaw lets the processes go on. It is no error if there is no such group any more.
func (g group) thaw() error {
	err := os.WriteFile(g.File, []byte(g.Thawed), 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("let a node's processes go on: %w", err)
	}
	return nil
}

// Group freezes the processes of a container. Before it does, it writes a record, by which ThawAll finds the group
// after a crash, and a process of its own stands ready to thaw the group if this one is killed.
type Group struct {
	group  group
	record string
	guard  *guard
	paused bool // it was frozen before, by another program
}

// NewGroup prepares to freeze the container of a process. records is the folder for records; command starts the
// process that thaws (see Guard). Close ends it.
func NewGroup(pid int, records string, command []string) (*Group, error) {
	g, err := groupOf(pid)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(records, 0o700); err != nil {
		return nil, err
	}
	w, err := startGuard(command, g)
	if err != nil {
		return nil, err
	}
	record := filepath.Join(records, fmt.Sprintf("%d-%d.json", pid, time.Now().UnixNano()))
	return &Group{group: g, record: record, guard: w}, nil
}

// Freeze stops the processes. They have stopped when it returns nil.
func (g *Group) Freeze(ctx context.Context) error {
	var err error
	if g.paused, err = g.group.stopped(); err != nil || g.paused {
		return err // an operator's pause is not ours to end
	}
	b, err := json.Marshal(g.group)
	if err != nil {
		return err
	}
	// Not synced: after a crash of the machine nothing is frozen.
	if err := os.WriteFile(g.record, b, 0o600); err != nil {
		return err
	}
	if err := g.guard.arm(); err != nil {
		return err
	}
	if err := os.WriteFile(g.group.File, []byte(g.group.Frozen), 0); err != nil {
		return fmt.Errorf("stop a node's processes: %w", err)
	}
	for {
		if ok, err := g.group.stopped(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Thaw lets the processes go on.
func (g *Group) Thaw() error {
	if g.paused {
		return nil
	}
	if err := g.group.thaw(); err != nil {
		return err
	}
	if err := os.Remove(g.record); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Close ends the process that stands by.
func (g *Group) Close() error { return g.guard.dismiss() }

// ThawAll thaws every group that a record names. Call it at the start, before anything else is frozen.
func ThawAll(records string) error {
	names, err := filepath.Glob(filepath.Join(records, "*.json"))
	errs := []error{err}
	for _, name := range names {
		b, err := os.ReadFile(name)
		var g group
		if err == nil {
			err = json.Unmarshal(b, &g)
		}
		if err == nil && strings.HasPrefix(g.File, cgroups) {
			errs = append(errs, g.thaw())
		}
		errs = append(errs, os.Remove(name))
	}
	return errors.Join(errs...)
}

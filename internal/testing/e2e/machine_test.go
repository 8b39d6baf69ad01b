package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/id"
)

// running is everything on the machine that belongs to the platform: processes, containers, networks, firewall tables,
// mounts.
func (p *platform) running() []string {
	var out []string
	for pid, args := range p.processes("") {
		out = append(out, fmt.Sprintf("process %d: %s", pid, args))
	}
	out = append(out, p.mounts(p.dir+"/")...)
	backing, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range backing {
		if b, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(b), p.dir+"/") {
			out = append(out, f+" is "+strings.TrimSpace(string(b)))
		}
	}
	tables := lines("nft", "list", "tables")
	for _, h := range p.state.Hosts {
		short := host8(h.ID)
		for _, what := range []string{"container", "network"} {
			args := []string{what, "ls", "--filter", "label=muster.host=" + h.ID, "--format", "{{.ID}}"}
			if what == "container" {
				args = append(args, "--all")
			}
			for _, l := range p.docker(args...) {
				out = append(out, what+" "+l+" of "+h.Name)
			}
		}
		for _, l := range tables {
			if strings.HasSuffix(l, "muster_"+short) {
				out = append(out, "firewall "+l)
			}
		}
		if _, err := os.Stat("/sys/class/net/mst" + short); err == nil {
			out = append(out, "bridge mst"+short)
		}
	}
	return out
}

// mounts are the machine's mounts within the platform's folder whose place has the word in its name.
func (p *platform) mounts(word string) (out []string) {
	for _, l := range lines("cat", "/proc/self/mountinfo") {
		if f := strings.Fields(l); len(f) > 4 && strings.HasPrefix(f[4], p.dir+"/") && strings.Contains(f[4], word) {
			out = append(out, "mount "+f[4])
		}
	}
	return out
}

// stored is what stays of the platform on disk.
func (p *platform) stored() []string {
	var out []string
	for _, path := range []string{p.dir, p.state.Postgres.Data} {
		if _, err := os.Stat(path); path != "" && err == nil {
			out = append(out, "folder "+path)
		}
	}
	for _, h := range p.state.Hosts {
		for _, l := range p.docker("image", "ls", "--filter", "reference=muster-"+host8(h.ID)+"/*", "--format",
			"{{.Repository}}:{{.Tag}}") {
			out = append(out, "image "+l)
		}
	}
	return out
}

// processes are those whose command line names the platform's state folder and the word, by pid.
func (p *platform) processes(word string) map[int]string {
	out := map[int]string{}
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range found {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
		line := strings.Join(args, " ")
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		ours := func(arg string) bool { return arg == p.dir || strings.HasPrefix(arg, p.dir+"/") }
		if err == nil && slices.ContainsFunc(args, ours) && strings.Contains(line, word) {
			out[pid] = line
		}
	}
	// A child that is about to become another program bears its parent's command line until then: it is no second one.
	all := maps.Clone(out)
	maps.DeleteFunc(out, func(pid int, line string) bool { return all[parent(pid)] == line })
	return out
}

// parent is a process's parent; 0 when it is gone.
func parent(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may hold anything
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}

// host8 is how a host's things are named on the machine.
func host8(host string) string {
	h, err := id.Parse[id.Host](host)
	if err != nil {
		return host
	}
	return container.Host8(h)
}

// docker is the output of a command to the platform's Docker engine.
func (p *platform) docker(args ...string) []string {
	return linesOf(exec.Command("docker", args...), p.env)
}

// lines is a command's output; a command that fails has said nothing.
func lines(name string, args ...string) []string { return linesOf(exec.Command(name, args...), nil) }

func linesOf(cmd *exec.Cmd, env []string) []string {
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		return []string{fmt.Sprintf("%s: %v", strings.Join(cmd.Args, " "), err)}
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/rsh"
)

// ssh runs a command on another rank as rsh does, which needs no server in the image. Everything else is for the
// image's own ssh: other hosts, other ports, and what is no command (forwarding, ControlMaster).
func ssh(args []string) int {
	if a, err := rsh.Parse(args); err == nil && a.Plain && isRank(a.Host) {
		return run(a)
	}
	own := nextInPath("ssh")
	if own == "" {
		fmt.Fprintln(os.Stderr, "muster: the image has no ssh: only commands on the ranks of the cluster "+
			"(node-0, node-1, …) can be run")
		return rsh.ExitLost
	}
	err := syscall.Exec(own, append([]string{own}, args...), os.Environ())
	fmt.Fprintf(os.Stderr, "muster: cannot run %s: %v\n", own, err)
	return rsh.ExitLost
}

// isRank reports whether a host is a rank of the cluster, by name or by address.
func isRank(host string) bool {
	ip := net.ParseIP(host)
	for name, rank := range rsh.Ranks("/etc/hosts") {
		if name == host || ip != nil && rank.Equal(ip) {
			return true
		}
	}
	return false
}

// nextInPath returns the first program of that name in PATH that is not this one; "" if there is none.
func nextInPath(name string) string {
	own, err := os.Stat(guest.Binary)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		st, statErr := os.Stat(path)
		if statErr != nil || st.IsDir() || st.Mode()&0o111 == 0 || err == nil && os.SameFile(own, st) {
			continue
		}
		return path
	}
	return ""
}

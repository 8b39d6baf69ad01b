// Package update replaces the agent on a host by another version of itself, and returns to the previous version if the
// new one does not work.
//
// Invariants:
//   - Nothing of a release runs before its list of hashes was found to be signed by a key built into this agent, and
//     its archive was found in the list under its own version and architecture. A version that is older than the
//     running one is refused, because a signature does not expire.
//   - Versions are installed side by side; "current" names the one that has proven itself here, and changes atomically.
//     Only the launcher of the current version starts a version on trial, a limited number of times. The launcher gives
//     it up for good if it ends, hangs, loses a lease that was healthy, or does not reach the server.
//   - Whatever process is killed at whatever moment, the next start resumes from the disk, with the trial or with the
//     previous version. A version that has worked is installed at all times.
//   - Renters' workloads do not belong to the agent's process: containers and overlays run on through all of it.
package update

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// namePattern restricts the names of versions, which become folders and parts of addresses.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

// numbered parses a version's number: v1.2.3, 1.2.3, and v1.2.3-4-gabcdef, which is four commits later.
var numbered = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-(\d{1,9})-g[0-9a-f]+)?$`)

func number(version string) (n [4]int, ok bool) {
	m := numbered.FindStringSubmatch(version)
	if m == nil {
		return n, false
	}
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most nine digits; none means 0
	}
	return n, true
}

// newer says why a version must not replace the running one, or returns "". An agent that was not built as a release
// has no number, and every numbered version is newer.
func newer(version, running string) string {
	n, ok := number(version)
	if !ok || !namePattern.MatchString(version) {
		return fmt.Sprintf("%q is no release's number", clip(version, 80))
	}
	old, ok := number(running)
	if !ok {
		return ""
	}
	for i := range n {
		if n[i] != old[i] {
			if n[i] > old[i] {
				return ""
			}
			break
		}
	}
	return fmt.Sprintf("%s is not newer than %s, which runs; the install script goes back, nothing else does", version,
		running)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

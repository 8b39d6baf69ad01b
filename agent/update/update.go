// Package update replaces the agent on a host by another version of itself, and goes back when that one does not work.
//
// What always holds:
//   - Nothing of a release runs before its list of hashes was found signed by a key built into this agent, and its
//     archive found in the list under its own version and architecture. A version that is older than the running one is
//     refused: a signature does not expire.
//   - Versions lie beside each other; "current" names the one that has proven itself here, and changes at once. What
//     has not proven itself is started only by the launcher of the current one, a bounded number of times, and given up
//     for good when it ends, hangs, loses a lease that was well, or does not reach the server.
//   - Whatever is killed at whatever moment, the next start goes on from the disk: with the trial, or with the version
//     before it. There is no moment in which no version that has worked is there.
//   - What runs for renters is not the agent's: containers and overlays go on through all of it.
package update

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// namePattern is what a version may be called: it becomes a folder and a part of an address.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

// numbered reads a version's number: v1.2.3, 1.2.3, and v1.2.3-4-gabcdef, which is four commits later.
var numbered = regexp.MustCompile(`^v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-(\d{1,9})-g[0-9a-f]+)?$`)

func number(version string) (n [4]int, ok bool) {
	m := numbered.FindStringSubmatch(version)
	if m == nil {
		return n, false
	}
	for i := range n {
		n[i], _ = strconv.Atoi(m[i+1]) // at most nine digits, or none: 0
	}
	return n, true
}

// newer says in words why a version must not take the place of the running one, or "". An agent that was not built as a
// release has no number, and anything that has one is newer.
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

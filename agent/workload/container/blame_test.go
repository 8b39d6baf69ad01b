package container

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// What an image or a renter says wrongly is not the host's failure. The messages are those of Docker 20.10 to 28 and
// runc.
func TestReasonOfImage(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"unable to find user ghost: no matching entries in passwd file":                     agentapi.ReasonImageRefused,
		"unable to find group ghost: no matching entries in group file":                     agentapi.ReasonImageRefused,
		"Error response from daemon: Cannot mkdir: /etc/passwd is not a directory":          agentapi.ReasonImageRefused,
		"invalid signal: SIGNONSENSE":                                                       agentapi.ReasonImageRefused,
		"exec /run/muster/guest: argument list too long":                                    agentapi.ReasonCommandNotFound,
		"OCI runtime create failed: lstat /proc/7/ns/net: no such file or directory":        "",
		"could not select device driver \"nvidia\" with capabilities: [[gpu]]":              "",
		"failed to create shim task: cgroup: cannot enter cgroupv2 with domain controllers": "",
	} {
		if got := ReasonOfImage(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}

package container

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// What an image or a renter says wrongly is not the host's failure. The messages are those of Docker 20.10 to 28 and
// runc.
func TestReasonOfImage(t *testing.T) {
	t.Parallel()
	const (
		refused  = agentapi.ReasonImageRefused
		inTheWay = "the image's own files do not allow a mount at /run/muster/guest: error mounting "
		mounting = "OCI runtime create failed: runc create failed: unable to start container process: error during " +
			"container init: error mounting \"/lease_x/f\" to rootfs at \"/run/muster/guest\": "
		swapped = "not a directory: unknown: Are you trying to mount a directory onto a file (or vice-versa)? Check " +
			"if the specified host path exists and is the expected type"
	)
	for message, want := range map[string]struct{ reason, detail string }{
		"unable to find user ghost: no matching entries in passwd file":                     {refused, "unable"},
		"unable to find group ghost: no matching entries in group file":                     {refused, "unable"},
		"Error response from daemon: Cannot mkdir: /etc/passwd is not a directory":          {refused, "Error"},
		"invalid signal: SIGNONSENSE":                                                       {refused, "invalid"},
		"exec /run/muster/guest: argument list too long":                                    {refused, "the environment"},
		mounting + "mount /f:/run/muster/guest flags: 0x5001: " + swapped:                   {refused, inTheWay},
		mounting + "open o_path procfd: open /x/merged/run/muster/guest: " + swapped:        {refused, inTheWay},
		mounting + "SecureJoin /x/muster/guest: too many levels of symbolic links":          {refused, inTheWay},
		mounting + `"/x/proc/guest" cannot be mounted because it is inside /proc`:           {refused, inTheWay},
		mounting + "stat /lease_x/f: not a directory":                                       {},
		mounting + "stat /lease_x/f: no such file or directory":                             {},
		mounting + "mount /f:/run/muster/guest, flags: 0x5001: no such file or directory":   {},
		"invalid mount config for type \"bind\": stat /lease_x/f: not a directory":          {},
		"OCI runtime create failed: lstat /proc/7/ns/net: no such file or directory":        {},
		"could not select device driver \"nvidia\" with capabilities: [[gpu]]":              {},
		"failed to create shim task: cgroup: cannot enter cgroupv2 with domain controllers": {},
		"": {},
	} {
		if reason, detail := ReasonOfImage(message); reason != want.reason || !strings.HasPrefix(detail, want.detail) {
			t.Errorf("%s: %q, %q, want %q", message, reason, detail, want)
		}
	}
}

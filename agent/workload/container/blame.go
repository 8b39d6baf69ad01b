package container

import (
	"regexp"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// ofImage are parts of the messages with which Docker and runc refuse to start a container because of what its image or
// its renter says. ReasonOfImage knows more of them; all other failed starts are the host's.
var ofImage = []string{
	"unable to find user", // USER is not in the image's /etc/passwd
	"unable to find group",
	"no matching entries in passwd file",
	"no matching entries in group file",
	"uids and gids must be in range",
	"cannot mkdir: ", // WORKDIR is a file
	"invalid signal", // STOPSIGNAL
	"invalid environment variable",
}

// ofMount matches runc's messages that the image's own files are where something is mounted: a file in the place of a
// folder or the other way round, or links that lead in a circle or into /proc. A source that is missing on the host is
// reported as "no such file or directory", or before runc is started.
var ofMount = regexp.MustCompile(`(?s)error mounting "[^"]*" to rootfs at "([^"]*)".*(?:not a directory|` +
	`too many levels of symbolic links|cannot be mounted because it is inside /proc)`)

// tooLong is the kernel's message for environments and arguments that are too long.
const tooLong = "argument list too long"

// ReasonOfImage returns why a container could not be started, from Docker's message, if its image or its renter is the
// cause, and a detail for the renter; "" otherwise.
func ReasonOfImage(message string) (reason, detail string) {
	if m := ofMount.FindStringSubmatch(message); m != nil && !strings.Contains(message, " stat ") {
		return agentapi.ReasonImageRefused, "the image's own files do not allow a mount at " + m[1] + ": " +
			message[strings.Index(message, "error mounting "):]
	}
	lower := strings.ToLower(message)
	if strings.Contains(lower, tooLong) {
		return agentapi.ReasonImageRefused, "the environment and the arguments together, or one variable or argument " +
			"alone, are longer than Linux allows: " + message
	}
	for _, o := range ofImage {
		if strings.Contains(lower, o) {
			return agentapi.ReasonImageRefused, message
		}
	}
	return "", ""
}

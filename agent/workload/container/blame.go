package container

import (
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// ofImage are parts of the messages with which Docker and runc refuse to start a container because of what its image or
// its renter says, and the reasons that follow. All other failed starts are the host's.
var ofImage = []struct{ text, reason string }{
	{"unable to find user", agentapi.ReasonImageRefused}, // USER is not in the image's /etc/passwd
	{"unable to find group", agentapi.ReasonImageRefused},
	{"no matching entries in passwd file", agentapi.ReasonImageRefused},
	{"no matching entries in group file", agentapi.ReasonImageRefused},
	{"uids and gids must be in range", agentapi.ReasonImageRefused},
	{"Cannot mkdir: ", agentapi.ReasonImageRefused}, // WORKDIR is a file
	{"invalid signal", agentapi.ReasonImageRefused}, // STOPSIGNAL
	{"invalid environment variable", agentapi.ReasonImageRefused},
	{"argument list too long", agentapi.ReasonCommandNotFound}, // the environment and the arguments
}

// ReasonOfImage returns why a container could not be started, from Docker's message, if its image or its renter is the
// cause; "" otherwise.
func ReasonOfImage(message string) string {
	message = strings.ToLower(message)
	for _, o := range ofImage {
		if strings.Contains(message, strings.ToLower(o.text)) {
			return o.reason
		}
	}
	return ""
}

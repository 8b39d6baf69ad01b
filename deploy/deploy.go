// Package deploy holds what brings Muster onto machines. The program contains the install script and the agent's unit
// so that a platform can serve them.
package deploy

import _ "embed"

// InstallScript is the script that installs the agent on a host.
//
//go:embed install-agent.sh
var InstallScript []byte

// AgentUnit is the agent's systemd unit.
//
//go:embed muster-agent.service
var AgentUnit []byte

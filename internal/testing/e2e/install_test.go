package e2e

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
)

// TestInstallCommand runs the command that the platform shows, with the agent that muster dev serves. The host is then
// enrolled: the script has checked the machine, verified the archive and installed it below a folder.
func TestInstallCommand(t *testing.T) {
	t.Parallel()
	p := sharedPlatform(t)
	operator := p.as(t, p.OperatorToken)
	enrollment, err := operator.Hosts.CreateEnrollment(t.Context(), client.CreateEnrollmentRequest{Name: "installed",
		Region: "eu-west", Fabric: ""})
	if err != nil {
		t.Fatal(err)
	}
	h := p.newHost(t, "installed", "NVIDIA L40S", 1)
	root := t.TempDir()
	command, found := strings.CutSuffix(enrollment.Command, " | sudo bash install-agent.sh --token-file -")
	if !found {
		t.Fatalf("the command is %s", enrollment.Command)
	}
	// --force: the machine of a test need not be fit for renters.
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		command+" | bash install-agent.sh --token-file - --force --root "+root)
	cmd.Dir, cmd.Env = t.TempDir(), h.env
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "This host is enrolled as installed") {
		t.Errorf("%v\n%s", err, out)
	}
}

package deploy

import (
	"strings"
	"testing"
)

func TestInstall_Ephemeral(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.must(m.install(token, "--url", "https://agents.example", "--token-file", "-", "--ephemeral"))
	if calls := m.read(m.calls); !strings.Contains(calls, " --ephemeral\n") {
		t.Errorf("calls:\n%s", calls)
	}
	if out, ok := newMachine(t).install("", "--ephemeral"); ok || !strings.Contains(out, "--url") {
		t.Errorf("without an enrolment: %t\n%s", ok, out)
	}
}

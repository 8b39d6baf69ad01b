package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/self/update"
)

// Whatever is unknown is found, and no value is taken for an option.
func TestUnknownFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"--state /x --power-limit 300,1=200 --userspace-wireguard": nil,
		"--state=/x --new-bound 7 --lease-up-mbps 5":               {"--new-bound"},
		"--new-switch --state /x --new=1 --prefetch=false":         {"--new-switch", "--new=1"},
		"--advertise --new --state /x":                             nil, // the option's value, as pflag has it
		"--userspace-wireguard --newer":                            {"--newer"},
		"-n 5 --state /x":                                          {"-n"},
		"--help":                                                   nil,
		"--state /x -- --new":                                      nil,
	} {
		cmd := runCommand()
		cmd.InitDefaultHelpFlag()
		if got := unknownFlags(cmd.Flags(), strings.Fields(line)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
		if err := cmd.ParseFlags(strings.Fields(line)); err != nil && line != "--help" {
			t.Errorf("%s: pflag: %v", line, err)
		}
	}
}

// An option that only a newer version knows keeps no agent away on a host that went back from it; a mistyped one does.
func TestOptionsOfANewerVersion(t *testing.T) {
	was := build.Version
	t.Cleanup(func() { build.Version = was })
	build.Version = "v1.1.0"
	f := &runFlags{state: t.TempDir()}
	flags := runCommand().Flags()
	args := []string{"--state", f.state, "--new-bound", "7"}
	if err := f.tolerate(flags, args); err == nil || !strings.Contains(err.Error(), "--new-bound") || f.ignored != nil {
		t.Errorf("a mistyped option passes: %v", err)
	}
	if err := update.Note(f.state, "v1.2.0"); err != nil {
		t.Fatal(err)
	}
	if err := f.tolerate(flags, args); err != nil {
		t.Errorf("it does not start: %v", err)
	}
	if f.ignored == nil || !strings.Contains(f.ignored.Cause, "--new-bound") ||
		!strings.Contains(f.ignored.Evidence, "v1.2.0") {
		t.Errorf("the ignored option is not reported: %+v", f.ignored)
	}
	build.Version = "v1.2.0" // the newer one knows all its own: to it the option is mistyped
	if err := f.tolerate(flags, args); err == nil {
		t.Error("a mistyped option passes in the newest version")
	}
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/self/update"
	"github.com/musterhq/muster/agent/workload/image"
)

// errHandOver is the error of an agent that ends because another version replaces it.
var errHandOver = errors.New("another version of the agent follows")

func launchCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "launch",
		Short: "Run the agent as the service does, with a new version on trial first",
		Long: `Run the agent of an enrolled host, like run, from where the install script puts it. A new version
that the platform asks for is started on trial: when it has not proven itself, the version before goes on. What runs on
the host goes on through all of it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(f.tolerate(cmd.Flags(), os.Args[2:]), f.check()); err != nil {
				return err
			}
			return f.launch(cmd.Context())
		},
	}
	f.addRun(cmd)
	return cmd
}

func (f *runFlags) launch(ctx context.Context) error {
	self, err := program()
	if err != nil {
		return err
	}
	args := append([]string{"run"}, os.Args[2:]...)
	tree, _, ok := update.Of(self)
	if !ok {
		return syscall.Exec(self, append([]string{self}, args...), os.Environ())
	}
	if err := os.MkdirAll(f.state, 0o700); err != nil {
		return err
	}
	l := update.Launcher{
		Tree:  tree,
		State: f.state,
		Args:  args,
		Log:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Limit: max(10*time.Minute, 5*f.probation),
	}
	return l.Run(ctx)
}

// handOver replaces this process by the launcher of the version that has passed its trial.
func handOver() error {
	self, err := program()
	if err != nil {
		return err
	}
	return syscall.Exec(self, append([]string{self, "launch"}, os.Args[2:]...), os.Environ())
}

// program returns this program's path, with links resolved: in the folder of its version.
func program() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(self)
}

// updater returns the updater that follows the platform's orders, if a launcher has started this agent.
func (f *runFlags) updater(log *slog.Logger) (*update.Updater, error) {
	self, err := program()
	if err != nil {
		return nil, err
	}
	keys, err := update.Keys(build.ReleaseKeys)
	if err != nil {
		return nil, err
	}
	tree, folder, ok := update.Of(self)
	return update.New(update.Config{
		Tree:      tree,
		Managed:   ok && folder == build.Version && os.Getenv(update.LaunchedEnv) == "1",
		State:     f.state,
		Version:   build.Version,
		Keys:      keys,
		Next:      image.PublicOnly(f.sources),
		Allow:     f.sources,
		Examine:   f.examine,
		Probation: f.probation,
		Log:       log,
	})
}

// examine runs a version's doctor and returns the checks with bad findings.
func (f *runFlags) examine(ctx context.Context, program string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	args := []string{"doctor", "--json", "--attach", f.attach, "--docker", f.docker}
	for _, a := range f.advertise {
		args = append(args, "--advertise", a)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	failed := cmd.Run() // bad findings are an error, too
	var all []finding
	if err := json.Unmarshal(stdout.Bytes(), &all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s doctor: %w %.300s", program, errors.Join(failed, err), stderr.String())
	}
	bad := []string{}
	for _, x := range all {
		if x.State == "bad" {
			bad = append(bad, x.Check)
		}
	}
	return bad, nil
}

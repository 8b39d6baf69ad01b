package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpu/probe"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/fault"
)

// controlSocket is the socket, within the state directory, on which the running agent receives its operator's requests.
// Only root can reach it.
const controlSocket = "control.sock"

// requalifyLimit is how long a reset, the registration with the NVSwitches, and the check after it may take.
const requalifyLimit = 6 * time.Minute

// controlRequest and controlReply are one JSON line each.
type controlRequest struct {
	Requalify string `json:"requalify"` // UUID of a GPU
}

type controlReply struct {
	Error string `json:"error,omitempty"`
}

func gpuCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gpu", Short: "Look after this host's GPUs"}
	cmd.AddCommand(requalifyCommand(), callsCommand())
	return cmd
}

func requalifyCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "requalify UUID",
		Short: "Reset a quarantined or suspect GPU, check it and put it back into service",
		Long: `Reset a quarantined or suspect GPU, check it and put it back into service. The host need not be rebooted.

The running agent does it: it lets go of the GPUs meanwhile, which nvidia-smi --gpu-reset by hand cannot make it do. A
GPU that has a lease is not reset. Persistence mode is off meanwhile and on again in the end. What else has the GPU open
must end first: a desktop, DCGM (systemctl stop nvidia-dcgm), an exporter. A GPU that has fallen off the bus, or shares
its memory with the processor (GH200, GB200), needs a reboot.`,
		Example: "  muster-agent inventory\n  sudo muster-agent gpu requalify GPU-eeaeac46-8f98-4be3-9af6-0f43bc42566c",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := requestRequalify(cmd.Context(), filepath.Join(state, controlSocket), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s was reset, passed its check and is healthy.\n", args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&state, "state", defaultState, "the agent's state directory")
	return cmd
}

func callsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "calls",
		Short: "Print the return code and value of every NVML call that the agent makes, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "\t")
			return enc.Encode(probe.Record(os.Getenv(gpu.LibraryEnv)))
		},
	}
}

// requestRequalify sends the request to the agent that runs on the state directory.
func requestRequalify(ctx context.Context, socket, uuid string) error {
	c, err := unixsock.Dial(ctx, socket)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the agent does not run here, or you are not root: systemctl status "+
			"muster-agent")
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(requalifyLimit + 10*time.Second))
	if err := json.NewEncoder(c).Encode(controlRequest{Requalify: uuid}); err != nil {
		return err
	}
	var reply controlReply
	if err := json.NewDecoder(c).Decode(&reply); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the agent ended before it answered")
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}

// serveControl answers the operator's requests until ctx ends.
func serveControl(ctx context.Context, socket string, requalify func(context.Context, string) error,
	log *slog.Logger) error {
	l, err := unixsock.Listen(socket, 0o600)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		go func() {
			defer c.Close()
			answerControl(ctx, c, requalify, log)
		}()
	}
}

func answerControl(ctx context.Context, c net.Conn, requalify func(context.Context, string) error, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, requalifyLimit)
	defer cancel()
	_ = c.SetDeadline(time.Now().Add(requalifyLimit + 5*time.Second))
	line, err := bufio.NewReaderSize(c, 4096).ReadSlice('\n')
	if err != nil {
		return
	}
	var r controlRequest
	var reply controlReply
	if err := json.Unmarshal(line, &r); err != nil || r.Requalify == "" {
		reply.Error = "the request names no GPU"
	} else if err := requalify(ctx, r.Requalify); err != nil {
		reply.Error = err.Error()
	}
	log.Info("requalify", "gpu", r.Requalify, "err", reply.Error)
	_ = json.NewEncoder(c).Encode(reply)
}

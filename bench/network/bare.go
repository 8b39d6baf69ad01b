package network

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/agent/workload/guest/preflight"
)

// Process runs what the benchmark starts itself as: the overlay, the WireGuard that is not ours, one rank's preflight.
// ok is false when args name none of them.
func Process(args []string) (code int, ok bool) {
	var err error
	switch {
	case len(args) == 2 && args[0] == "overlay":
		return overlay.Main(args[1:]), true
	case len(args) == 2 && args[0] == "wireguard":
		err = bare(args[1])
	case len(args) == 1 && args[0] == "preflight":
		err = measureOnce(os.Stdin, os.Stdout)
	default:
		return 0, false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		return 1, true
	}
	return 0, true
}

func measureOnce(in io.Reader, out io.Writer) error {
	var q guest.PreflightRequest
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(preflight.Run(context.Background(), q))
}

// bareConfig is one end of a WireGuard tunnel. It is on the command line: its keys guard nothing.
type bareConfig struct {
	NetNS, Address, Endpoint, Allowed string
	MTU, Port                         int
	Key, Peer                         wgtypes.Key
}

// sized answers for the MTU: asking the device by name fails outside its namespace.
type sized struct {
	tun.Device
	mtu int
}

func (s sized) MTU() (int, error) { return s.mtu, nil }

// bare is wireguard-go as it comes: its own sockets, a TUN device in the guest's namespace. It runs until it is killed.
func bare(text string) error {
	var c bareConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ns, err := os.Open(c.NetNS)
	if err != nil {
		return err
	}
	var fd int
	err = netns.Inside(ns, func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		ifr, err := unix.NewIfreq("wg0")
		if err != nil {
			return err
		}
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return err
		}
		for _, args := range [][]string{{"addr", "add", c.Address, "dev", "wg0"},
			{"link", "set", "wg0", "mtu", fmt.Sprint(c.MTU), "up"}} {
			if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %v: %w: %s", args, err, out)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return err
	}
	d := device.NewDevice(sized{t, c.MTU}, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, ""))
	err = d.IpcSet(fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nendpoint=%s\nallowed_ip=%s\n",
		hex.EncodeToString(c.Key[:]), c.Port, hex.EncodeToString(c.Peer[:]), c.Endpoint, c.Allowed))
	if err == nil {
		err = d.Up()
	}
	if err != nil {
		return err
	}
	fmt.Println("up")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	return nil
}

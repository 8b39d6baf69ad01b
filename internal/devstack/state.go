package devstack

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// state is what a start must find again: secrets, ports, accounts and hosts. It is stored in DIR/state.json with mode
// 0600.
type state struct {
	Secret   string `json:"secret"` // seals stored secrets; base64
	Postgres struct {
		Data string `json:"data"`
		Port int    `json:"port"`
	} `json:"postgres"`
	Ports    ports       `json:"ports"`
	Accounts accounts    `json:"accounts"`
	Hosts    []hostState `json:"hosts"`
	path     string
	guard    net.Listener // guard of the ports; nil if they have none
}

// ports stay the same over restarts: enrolled hosts reconnect to them, and image references contain the registry's.
type ports struct {
	Guard    int `json:"guard"`  // see freePorts; 0 for an earlier version's ports
	People   int `json:"people"` // dashboard and REST, if no port was requested
	Agent    int `json:"agent"`  // enrolment and streams, TLS
	NATS     int `json:"nats"`
	Registry int `json:"registry"`
	Metrics  int `json:"metrics"`
	Gateway  int `json:"gateway"` // SSH
	Relay    int `json:"relay"`   // UDP: the overlays of running clusters continue to use it
}

type accounts struct {
	Password      string `json:"password"`
	RenterToken   string `json:"renter_token"`
	OperatorToken string `json:"operator_token"`
	AdminToken    string `json:"admin_token"`
}

type hostState struct {
	Name string `json:"name"`
	ID   string `json:"id"` // host_…, set once enrolled
}

func loadState(dir string) (*state, error) {
	s := &state{path: filepath.Join(dir, "state.json")}
	b, err := os.ReadFile(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return s, s.fill(dir)
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; `muster dev --down %s` removes everything", s.path, err, dir)
	}
	return s, s.complete()
}

// complete adds the ports that an earlier version did not store.
func (s *state) complete() error {
	if s.Ports.Guard != 0 {
		s.guard = holdGuard(s.Ports.Guard)
	}
	var missing []*int
	for _, p := range []*int{&s.Ports.Gateway, &s.Ports.Relay} {
		if *p == 0 {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	free, guard, err := freePorts(len(missing))
	if err != nil {
		return err
	}
	if s.Ports.Guard == 0 {
		s.Ports.Guard, s.guard = guard.Addr().(*net.TCPAddr).Port, guard
	} else {
		guard.Close()
	}
	for i, p := range missing {
		*p = free[i]
	}
	return s.save()
}

func (s *state) fill(dir string) error {
	s.Secret = secret(32)
	s.Accounts.Password = secret(12)
	free, guard, err := freePorts(8)
	if err != nil {
		return err
	}
	s.guard = guard
	s.Postgres.Port, s.Ports = free[0], ports{guard.Addr().(*net.TCPAddr).Port, free[1], free[2], free[3], free[4],
		free[5], free[6], free[7]}
	s.Postgres.Data, err = postgresData(dir)
	if err != nil {
		return err
	}
	return s.save()
}

// save replaces the file atomically.
func (s *state) save() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(s.path, append(b, '\n'))
}

// writeFile durably writes content to path, with mode 0600, in one step.
func writeFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails after the rename
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func secret(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// postgresData returns a folder that PostgreSQL's unprivileged user can reach: DIR/postgres if every parent folder
// permits it, else one under /var/lib.
func postgresData(dir string) (string, error) {
	in := filepath.Join(dir, "postgres")
	if os.Geteuid() != 0 {
		return in, nil
	}
	cred, err := unprivileged()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		var st syscall.Stat_t
		if err := syscall.Stat(d, &st); err != nil {
			return "", err
		}
		reachable := st.Mode&0o001 != 0 || (st.Uid == cred.Uid && st.Mode&0o100 != 0) ||
			(st.Gid == cred.Gid && st.Mode&0o010 != 0)
		if !reachable {
			return filepath.Join("/var/lib/muster-dev", secret(9)), os.MkdirAll("/var/lib/muster-dev", 0o755)
		}
		if d == filepath.Dir(d) {
			return in, nil
		}
	}
}

// lock prevents two `muster dev` from using one state folder. The kernel releases it when the process ends, however it
// ends.
func lock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another `muster dev` uses %s", dir)
	}
	return f, nil
}

package base

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/musterhq/muster/internal/fault"
)

// DefaultProfile is the profile of a login that names none.
const DefaultProfile = "default"

// Login is a platform and a token for it.
type Login struct {
	Server string `json:"server"`
	Token  string `json:"token"` // secret
}

// Logins is what `muster login` stores, in a file that only its owner can read: one login per profile.
type Logins struct {
	Current  string           `json:"current"` // the profile of commands that name none
	Profiles map[string]Login `json:"profiles"`
}

// Names returns the names of the stored profiles, sorted.
func (l Logins) Names() []string { return slices.Sorted(maps.Keys(l.Profiles)) }

var profileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckProfile returns an error for a name that no profile can have.
func CheckProfile(name string) error {
	if !profileName.MatchString(name) {
		return fault.New(fault.Invalid, "%q cannot name a profile: use letters, digits, dots, dashes and underscores", name)
	}
	return nil
}

// LoginFile returns the path of the stored logins, by the XDG base directory specification.
func LoginFile(ctx context.Context) (string, error) {
	dir := Variable(ctx, "XDG_CONFIG_HOME")
	if dir == "" {
		home := Variable(ctx, "HOME")
		if home == "" {
			return "", fault.New(fault.Invalid, "neither XDG_CONFIG_HOME nor HOME is set, so a login cannot be stored; "+
				"use MUSTER_SERVER and MUSTER_TOKEN")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "muster", "login.json"), nil
}

// ReadLogins returns the stored logins; there may be none.
func ReadLogins(ctx context.Context) (Logins, error) {
	none := Logins{Current: DefaultProfile, Profiles: map[string]Login{}}
	path, err := LoginFile(ctx)
	if err != nil {
		return none, nil //nolint:nilerr // without a home there is no login
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("read the stored logins: %w", err)
	}
	var stored struct {
		Logins
		Login // as versions before profiles stored it
	}
	if err := json.Unmarshal(raw, &stored); err != nil {
		return none, fault.New(fault.Invalid, "%s is damaged: run muster login again", path)
	}
	if stored.Profiles == nil {
		none.Profiles[DefaultProfile] = stored.Login
		return none, nil
	}
	return stored.Logins, nil
}

// WriteLogins atomically replaces the stored logins.
func WriteLogins(ctx context.Context, l Logins) (path string, err error) {
	if path, err = LoginFile(ctx); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	raw, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return "", err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "login-*") // 0600
	if err != nil {
		return "", err
	}
	_, werr := temp.Write(append(raw, '\n'))
	if err := errors.Join(werr, temp.Close()); err != nil {
		return "", errors.Join(err, os.Remove(temp.Name()))
	}
	return path, os.Rename(temp.Name(), path)
}

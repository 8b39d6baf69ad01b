package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/internal/fault"
)

// login is what `muster login` keeps, readable by its owner only.
type login struct {
	Server string `json:"server"`
	Token  string `json:"token"` // secret
}

// loginFile follows the XDG base directory specification.
func loginFile(ctx context.Context) (string, error) {
	dir := variable(ctx, "XDG_CONFIG_HOME")
	if dir == "" {
		home := variable(ctx, "HOME")
		if home == "" {
			return "", fault.New(fault.Invalid, "neither XDG_CONFIG_HOME nor HOME is set: there is no place for the login; "+
				"use MUSTER_SERVER and MUSTER_TOKEN")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "muster", "login.json"), nil
}

// readLogin is the stored login; none is no error.
func readLogin(ctx context.Context) (login, error) {
	path, err := loginFile(ctx)
	if err != nil {
		return login{}, nil //nolint:nilerr // without a home there is no login
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return login{}, nil
	}
	if err != nil {
		return login{}, fmt.Errorf("read the login: %w", err)
	}
	var l login
	if err := json.Unmarshal(raw, &l); err != nil {
		return login{}, fault.New(fault.Invalid, "%s is damaged: run muster login again", path)
	}
	return l, nil
}

// writeLogin replaces the file whole, so that a crash leaves the old or the new one.
func writeLogin(ctx context.Context, l login) (path string, err error) {
	if path, err = loginFile(ctx); err != nil {
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

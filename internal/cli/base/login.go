package base

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

// SavedLogin is what `muster login` stores, in a file that only its owner can read.
type SavedLogin struct {
	Server string `json:"server"`
	Token  string `json:"token"` // secret
}

// LoginFile returns the path of the stored login, by the XDG base directory specification.
func LoginFile(ctx context.Context) (string, error) {
	dir := Variable(ctx, "XDG_CONFIG_HOME")
	if dir == "" {
		home := Variable(ctx, "HOME")
		if home == "" {
			return "", fault.New(fault.Invalid, "neither XDG_CONFIG_HOME nor HOME is set: there is no place for the login; "+
				"use MUSTER_SERVER and MUSTER_TOKEN")
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "muster", "login.json"), nil
}

// ReadLogin returns the stored login, or an empty one if there is none.
func ReadLogin(ctx context.Context) (SavedLogin, error) {
	path, err := LoginFile(ctx)
	if err != nil {
		return SavedLogin{}, nil //nolint:nilerr // without a home there is no login
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return SavedLogin{}, nil
	}
	if err != nil {
		return SavedLogin{}, fmt.Errorf("read the login: %w", err)
	}
	var l SavedLogin
	if err := json.Unmarshal(raw, &l); err != nil {
		return SavedLogin{}, fault.New(fault.Invalid, "%s is damaged: run muster login again", path)
	}
	return l, nil
}

// WriteLogin atomically replaces the stored login.
func WriteLogin(ctx context.Context, l SavedLogin) (path string, err error) {
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

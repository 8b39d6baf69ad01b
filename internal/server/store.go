package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/seal"
)

// probeTime limits how long the store is probed at the start.
const probeTime = 30 * time.Second

// openStore opens the store of volumes, checks that it does what volumes rely on, and makes the use cases. Without a
// store, the platform offers no volumes.
func (s *Server) openStore(ctx context.Context, box *seal.Box, secret []byte) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	var st store.Store
	var err error
	switch {
	case s.cfg.StoreS3 != "":
		st, err = s.openS3(ctx, secret)
	case s.cfg.StoreFolder != "":
		st, err = s.openFolder(ctx, secret)
	}
	if err != nil {
		return err
	}
	price, err := s.cfg.storagePrice()
	if err != nil {
		return err
	}
	s.Volumes = volume.New(s.db, st, volume.Config{
		Currency: s.cfg.Currency, Box: box, PricePerGBHour: price, MaxStored: s.cfg.MaxStoredGB * volume.GB,
		FreeStored: s.cfg.FreeStoredGB * volume.GB, FreeRead: s.cfg.FreeReadGB * volume.GB,
		KeepUnknown: time.Duration(s.cfg.KeepUnknownDays) * 24 * time.Hour, Bus: s.link.Bus(), Log: s.log,
	})
	return nil
}

func (s *Server) openFolder(ctx context.Context, secret []byte) (store.Store, error) {
	folder, err := store.OpenFolder(s.cfg.StoreFolder, s.cfg.PublicURL, secret)
	if err != nil {
		return nil, err
	}
	if err := folder.Probe(ctx); err != nil {
		return nil, unusable(err)
	}
	s.packs = folder.Handler()
	return folder, nil
}

// openS3 opens an S3 store. If it does not hold to what a signed PUT demands, packs pass through this server.
func (s *Server) openS3(ctx context.Context, secret []byte) (store.Store, error) {
	cfg, err := s.cfg.s3()
	if err != nil {
		return nil, err
	}
	direct, err := store.OpenS3(cfg)
	if err != nil {
		return nil, err
	}
	err = direct.Probe(ctx)
	var lack *store.Lack
	if !errors.As(err, &lack) {
		if err != nil {
			return nil, unusable(err)
		}
		return direct, nil
	}
	proxy, err := store.NewProxy(direct, s.cfg.PublicURL, secret)
	if err != nil {
		return nil, err
	}
	if err := proxy.Probe(ctx); err != nil {
		return nil, unusable(fmt.Errorf("%w; and not through this server either: %w", lack, err))
	}
	s.log.Warn("hosts send packs to the store through this server", "because", lack)
	s.packs = proxy.Handler()
	return proxy, nil
}

func unusable(err error) error { return fmt.Errorf("the store of volumes is not usable: %w", err) }

// s3 reads MUSTER_STORE_S3: https://host[:port]/bucket[/prefix].
func (c *Config) s3() (store.S3Config, error) {
	scheme, rest, ok := strings.Cut(c.StoreS3, "://")
	host, path, _ := strings.Cut(rest, "/")
	bucket, prefix, _ := strings.Cut(path, "/")
	if !ok || host == "" || bucket == "" || c.StoreAccessKey == "" || c.StoreSecretKey == "" {
		return store.S3Config{}, fault.InvalidField("MUSTER_STORE_S3",
			"want https://host[:port]/bucket[/prefix], and MUSTER_STORE_ACCESS_KEY and MUSTER_STORE_SECRET_KEY")
	}
	return store.S3Config{
		Endpoint: scheme + "://" + host, Region: c.StoreRegion, Bucket: bucket, Prefix: prefix,
		Access: string(c.StoreAccessKey), Secret: string(c.StoreSecretKey),
	}, nil
}

// storagePrice returns the price of a stored GB for an hour, rounded to nano-units.
func (c *Config) storagePrice() (money.Nano, error) {
	month, err := money.ParseNano(c.StoragePrice)
	if err != nil || month < 0 {
		return 0, fault.InvalidField("MUSTER_STORAGE_PRICE", "want the price of a GB for a month, such as 0.05")
	}
	return (month + volume.HoursPerMonth/2) / volume.HoursPerMonth, nil
}

-- What is destroyed: the keys of data domains, and the names of an organisation that is gone.

-- name: EraseDataDomain :exec
-- Destroys the key of a locked domain that has no volume, and no cluster that had one and has not ended everywhere.
UPDATE data_domain d SET key_sealed = NULL, erased_at = clock_timestamp()
WHERE d.id = @id AND d.erased_at IS NULL
  AND NOT EXISTS (SELECT FROM volume v WHERE v.domain_id = d.id AND v.deleted_at IS NULL)
  AND NOT EXISTS (SELECT FROM volume v JOIN volume_mount m ON m.volume_id = v.id JOIN cluster c ON c.id = m.cluster_id
                  WHERE v.domain_id = d.id AND (c.ended_at IS NULL
                        OR EXISTS (SELECT FROM lease l WHERE l.cluster_id = c.id AND l.ended_at IS NULL)));

-- name: EraseVolumeNames :exec
UPDATE volume SET name = 'deleted' WHERE org_id = @org_id AND deleted_at IS NOT NULL;

-- name: EraseSnapshotLabels :exec
UPDATE volume_snapshot s SET label = '' FROM volume v WHERE v.id = s.volume_id AND v.org_id = @org_id AND s.label <> '';

-- name: EraseSessionProblems :exec
UPDATE data_session x SET problem = '' FROM volume v WHERE v.id = x.volume_id AND v.org_id = @org_id AND x.problem <> '';

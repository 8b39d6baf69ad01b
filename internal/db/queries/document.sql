-- name: InsertDocument :execrows
-- The first one stands. Its number is set at the commit.
INSERT INTO document (key, series, org_id, corrects, content, zone)
VALUES (@key, @series, @org_id, @corrects, @content, coalesce((SELECT o.zone FROM org o WHERE o.id = @org_id), 'UTC'))
ON CONFLICT DO NOTHING;

-- name: DocumentByKey :one
SELECT key, series, org_id, corrects, coalesce(year, 0)::integer AS year, coalesce(number, 0)::bigint AS number,
       coalesce(issued_at, to_timestamp(0))::timestamptz AS issued_at, content
FROM document WHERE key = $1;

-- name: DocumentByNumber :one
-- With the number of the document that it corrects; 0: that has none of the register.
SELECT d.key, d.series, d.org_id, d.corrects, coalesce(d.year, 0)::integer AS year, coalesce(d.number, 0)::bigint AS number,
       coalesce(d.issued_at, to_timestamp(0))::timestamptz AS issued_at, d.content,
       coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year, coalesce(c.number, 0)::bigint AS corrects_number
FROM document d LEFT JOIN document c ON c.key = d.corrects
WHERE d.series = @series AND d.year = @year::integer AND d.number = @number::bigint AND d.org_id = @org_id;

-- name: DocumentsOfOrg :many
-- An org's documents of a series and year, newest first.
SELECT d.key, d.series, d.org_id, d.corrects, coalesce(d.year, 0)::integer AS year, coalesce(d.number, 0)::bigint AS number,
       coalesce(d.issued_at, to_timestamp(0))::timestamptz AS issued_at, d.content,
       coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year, coalesce(c.number, 0)::bigint AS corrects_number
FROM document d LEFT JOIN document c ON c.key = d.corrects
WHERE d.org_id = @org_id AND d.series = @series AND d.year = @year::integer AND d.number < @before::bigint
ORDER BY d.number DESC LIMIT @max_rows;

-- name: DocumentSeries :many
-- scan: lookup
-- Each series and year: how many numbers were given, and how many documents have them. A row of either side alone
-- is a fault, too. Documents up to the number that AdvanceDocumentCheck came to are not read again.
WITH RECURSIVE known AS (
    (SELECT f.series, f.year FROM document f WHERE f.year IS NOT NULL ORDER BY f.series, f.year LIMIT 1)
    UNION ALL
    SELECT x.series, x.year
    FROM known k CROSS JOIN LATERAL (SELECT o.series, o.year FROM document o WHERE (o.series, o.year) > (k.series, k.year)
                                     ORDER BY o.series, o.year LIMIT 1) x
)
SELECT s.series::text AS series, s.year::integer AS year, coalesce(n.next - 1, 0)::bigint AS given,
       (coalesce(c.through, 0) + t.documents)::bigint AS documents,
       CASE WHEN c.through IS NOT NULL THEN 1 ELSE coalesce(t.first, 0) END::bigint AS first,
       coalesce(t.last, c.through, 0)::bigint AS last, t.disorder::bigint AS disorder, coalesce(c.problem, '')::text AS problem
FROM (SELECT a.series, a.year FROM document_number a UNION SELECT b.series, b.year FROM known b) s
LEFT JOIN document_number n ON n.series = s.series AND n.year = s.year
LEFT JOIN document_checked c ON c.series = s.series AND c.year = s.year
CROSS JOIN LATERAL (
    SELECT count(*) AS documents, min(x.number) AS first, max(x.number) AS last,
           count(*) FILTER (WHERE x.issued_at < coalesce(x.previous, c.last_at)) AS disorder
    FROM (SELECT o.number, o.issued_at, lag(o.issued_at) OVER (ORDER BY o.number) AS previous
          FROM document o WHERE o.series = s.series AND o.year = s.year AND o.number > coalesce(c.through, 0)) x) t
ORDER BY 1, 2;

-- name: AdvanceDocumentCheck :execrows
-- scan: done
-- Records of each series and year how far its documents have no gap and are in order of issue, max_rows further at most. A document with a number
-- is committed after all those before it.
WITH RECURSIVE known AS (
    (SELECT f.series, f.year FROM document f WHERE f.year IS NOT NULL ORDER BY f.series, f.year LIMIT 1)
    UNION ALL
    SELECT x.series, x.year
    FROM known k CROSS JOIN LATERAL (SELECT o.series, o.year FROM document o WHERE (o.series, o.year) > (k.series, k.year)
                                     ORDER BY o.series, o.year LIMIT 1) x
)
INSERT INTO document_checked (series, year, through, last_at)
SELECT s.series, s.year, t.last, t.last_at
FROM known s
LEFT JOIN document_checked c ON c.series = s.series AND c.year = s.year
CROSS JOIN LATERAL (
    SELECT count(*) AS documents, min(x.number) AS first, max(x.number) AS last, max(x.issued_at) AS last_at,
           count(*) FILTER (WHERE x.issued_at < coalesce(x.previous, c.last_at)) AS disorder
    FROM (SELECT o.number, o.issued_at, lag(o.issued_at) OVER (ORDER BY o.number) AS previous
          FROM document o WHERE o.series = s.series AND o.year = s.year AND o.number > coalesce(c.through, 0)
          ORDER BY o.number LIMIT @max_rows) x) t
WHERE t.documents > 0 AND t.first = coalesce(c.through, 0) + 1 AND t.last = coalesce(c.through, 0) + t.documents AND t.disorder = 0
ON CONFLICT (series, year) DO UPDATE SET through = excluded.through, last_at = excluded.last_at WHERE document_checked.through < excluded.through;

-- name: DocumentsToCheck :one
-- scan: lookup
-- The series of a year whose documents were read longest ago.
SELECT series, year, through, last_at, checked_at FROM document_checked ORDER BY checked_at, series, year LIMIT 1;

-- name: DocumentsThrough :one
-- What the documents of a series and year up to a number are.
SELECT count(*) AS documents, coalesce(min(x.number), 0)::bigint AS first, coalesce(max(x.number), 0)::bigint AS last,
       count(*) FILTER (WHERE x.issued_at < x.previous) AS disorder, coalesce(max(x.issued_at), 'epoch')::timestamptz AS last_at
FROM (SELECT o.number, o.issued_at, lag(o.issued_at) OVER (ORDER BY o.number) AS previous
      FROM document o WHERE o.series = @series AND o.year = @year::integer AND o.number <= @through::bigint) x;

-- name: DocumentsChecked :exec
UPDATE document_checked SET checked_at = clock_timestamp(), problem = @problem WHERE series = @series AND year = @year;

-- name: DocumentsIssued :many
-- scan: page
-- Documents of one org or of all, of one series or of all, of one year or of all: those issued before a moment, newest
-- first. Documents of one moment are in the order of their keys.
SELECT d.key, d.series, d.org_id, o.name AS org_name, d.year::integer AS year, d.number::bigint AS number, d.issued_at::timestamptz AS issued_at,
       d.zone, d.content, coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year,
       coalesce(c.number, 0)::bigint AS corrects_number
FROM document d JOIN org o ON o.id = d.org_id LEFT JOIN document c ON c.key = d.corrects
WHERE d.number IS NOT NULL AND (sqlc.narg(org_id)::uuid IS NULL OR d.org_id = sqlc.narg(org_id)::uuid)
  AND (@series::text = '' OR d.series = @series) AND (@year::integer = 0 OR d.year = @year)
  AND (d.issued_at, d.key) < (@before_at::timestamptz, @before_key::text)
ORDER BY d.issued_at DESC, d.key DESC LIMIT @max_rows;

-- name: DocumentNumbered :one
-- A document of any org by its number.
SELECT d.key, d.series, d.org_id, o.name AS org_name, d.year::integer AS year, d.number::bigint AS number, d.issued_at::timestamptz AS issued_at,
       d.zone, d.content, coalesce(c.series, '')::text AS corrects_series, coalesce(c.year, 0)::integer AS corrects_year,
       coalesce(c.number, 0)::bigint AS corrects_number
FROM document d JOIN org o ON o.id = d.org_id LEFT JOIN document c ON c.key = d.corrects
WHERE d.series = @series AND d.year = @year::integer AND d.number = @number::bigint;

-- name: DocumentCorrections :many
-- The documents of an org that correct or cancel a document, in the order of issue.
SELECT series, year::integer AS year, number::bigint AS number FROM document
WHERE org_id = @org_id AND corrects = @key::text AND number IS NOT NULL ORDER BY issued_at, key;

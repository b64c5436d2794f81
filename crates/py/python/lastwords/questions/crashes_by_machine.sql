-- How many crashes have which kernel, hardware and firmware, and since when?
SELECT release, arch, hardware, bios, count(*) AS crashes, count(DISTINCT host) AS hosts,
    count(DISTINCT signature) AS signatures, min(time) AS since, max(time) AS latest
FROM crashes GROUP BY release, arch, hardware, bios
ORDER BY crashes DESC, since, release, hardware, bios

# R's peers for peers.py: one way per call, files exchanged through a folder.
#
#     Rscript peers.R <folder> <soap|kernel|heat>
#
# Reads nodes.csv (x, y, area, count), points.csv (x, y), rings.csv (ring, hole, x, y) and knots.csv (x, y);
# writes found.csv (mean, q05, q50, q95 of the intensity at the nodes) and note.txt (seconds, then words).

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
way <- arguments[2]
read <- function(name) read.csv(file.path(folder, name))
nodes <- read("nodes.csv")
points <- read("points.csv")
rings <- read("rings.csv")

write_out <- function(found, seconds, note) {
  write.csv(found, file.path(folder, "found.csv"), row.names = FALSE)
  writeLines(c(format(seconds), note), file.path(folder, "note.txt"))
}

if (way == "soap") {
  suppressMessages(library(mgcv))
  begin <- proc.time()[["elapsed"]]
  # Every ring is a boundary of its own, so that each island has its own film and boundary curve.
  boundary <- lapply(split(rings, rings$ring), function(ring) list(x = ring$x, y = ring$y))
  knots <- read("knots.csv")
  fitted <- gam(
    count ~ s(x, y, bs = "so", k = 20, xt = list(bnd = unname(boundary), nmax = 250)) + offset(log(area)),
    family = poisson, method = "REML", data = nodes, knots = knots
  )
  link <- predict(fitted, nodes, se.fit = TRUE)
  centre <- as.numeric(link$fit) - log(nodes$area)
  se <- as.numeric(link$se.fit)
  seconds <- proc.time()[["elapsed"]] - begin
  found <- data.frame(
    mean = exp(centre + se^2 / 2), q05 = exp(centre - 1.6449 * se), q50 = exp(centre),
    q95 = exp(centre + 1.6449 * se)
  )
  note <- sprintf("mgcv %s, soap film, %d rings, %d knots inside, %.0f effective parameters",
    packageVersion("mgcv"), length(boundary), nrow(knots), sum(fitted$edf))
} else {
  suppressMessages(library(spatstat))
  begin <- proc.time()[["elapsed"]]
  polygons <- lapply(split(rings, rings$ring), function(ring) list(x = ring$x, y = ring$y))
  land <- owin(poly = unname(polygons))
  pattern <- suppressWarnings(ppp(points$x, points$y, window = land))
  if (way == "kernel") {
    sigma <- bw.ppl(pattern, srange = c(1, 20), ns = 20)
    surface <- density(pattern, sigma = sigma, edge = TRUE, diggle = TRUE, eps = 0.5)
    what <- "Diggle's edge correction, bw.ppl"
  } else {
    # spatstat's own choice (bw.pplHeat) leaves out point after point and takes minutes: five folds instead.
    # Pixels of 0.35 km with four neighbours each keep the river closed; for the choice, 0.5 km is enough.
    set.seed(1)
    fold <- sample(rep_len(1:5, npoints(pattern)))
    heat <- function(some, sigma, eps) {
      densityHeat(some, sigma = sigma, eps = eps, connect = 4, verbose = FALSE)
    }
    trials <- exp(seq(log(2), log(12), length.out = 9))
    score <- sapply(trials, function(trial) {
      sum(sapply(1:5, function(k) {
        value <- safelookup(heat(pattern[fold != k], trial, 0.5), pattern[fold == k], warn = FALSE)
        sum(log(pmax(value, 1e-9)))
      }))
    })
    sigma <- trials[which.max(score)]
    surface <- heat(pattern, sigma, 0.35)
    what <- "heat kernel, pixels of 0.35 km, bandwidth by five-fold likelihood"
  }
  at <- ppp(nodes$x, nodes$y, window = boundingbox(Frame(surface), owin(range(nodes$x), range(nodes$y))))
  value <- safelookup(surface, at, warn = FALSE)
  seconds <- proc.time()[["elapsed"]] - begin
  found <- data.frame(mean = value, q05 = NA, q50 = value, q95 = NA)
  note <- sprintf("spatstat %s, %s, sigma %.2f km", packageVersion("spatstat"), what, as.numeric(sigma))
}
write_out(found, seconds, note)

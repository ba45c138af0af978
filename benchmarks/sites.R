# R's peers for values.py and prevalence.py: one way per call, all folds in it, files exchanged through a folder.
#
#     Rscript sites.R <folder> <values|prevalence> <ordinary|universal|tp|soap>
#     Rscript sites.R <folder> data <meuse|jura|radiation|lime|cadmium>
#
# Reads sites.csv (x, y, value or positive and tested), folds.csv (a column for each fit, 0: fitted, 1: held out), and
# for the soap film rings.csv (ring, x, y) and knots.csv (x, y). Writes found.csv (fold, site, mean, sd, lambda): what
# is predicted there is normal with this mean and sd on the scale of the transform, noise included; for prevalence by
# mgcv it is the log odds of a site's own prevalence, and by kriging the empirical log odds.
# note.txt has seconds of the processor, then words. "data" writes sites.csv and, where there is one, land.csv (x, y).

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
kind <- arguments[2]
way <- arguments[3]
read <- function(name) read.csv(file.path(folder, name))
keep <- function(table, name) write.csv(table, file.path(folder, name), row.names = FALSE)

if (kind == "data") {
  suppressMessages({ library(sp); library(gstat) })
  fetch <- function(name, package) { e <- new.env(); data(list = name, package = package, envir = e); e }
  if (way %in% c("meuse", "lime")) {
    meuse <- fetch("meuse", "sp")$meuse
    land <- fetch("meuse.area", "sp")$meuse.area
    sites <- data.frame(x = meuse$x, y = meuse$y, value = meuse$zinc, positive = as.integer(meuse$lime == "1"))
    keep(data.frame(x = land[, 1], y = land[, 2]), "land.csv")
  } else if (way %in% c("jura", "cadmium")) {
    jura <- fetch("jura", "gstat")
    both <- rbind(jura$jura.pred, jura$jura.val)
    sites <- data.frame(x = both$Xloc, y = both$Yloc, value = both$Co, positive = as.integer(both$Cd > 0.8))
  } else {
    sites <- fetch("sic2004", "gstat")$sic.train
    sites <- data.frame(x = sites$x / 1000, y = sites$y / 1000, value = sites$day01)
  }
  keep(sites, "sites.csv")
  quit("no")
}

sites <- read("sites.csv")
folds <- as.matrix(read("folds.csv"))

# -- kriging, its variogram fitted as automap does: the lags, the starting values, the best of several models

fitted_variogram <- function(formula, data) {
  diagonal <- sqrt(sum(apply(coordinates(data), 2, function(v) diff(range(v)))^2))
  lags <- 0.35 * diagonal * c(2, 4, 6, 9, 12, 15, 25, 35, 50, 65, 80, 100) / 100
  cloud <- variogram(formula, data, boundaries = lags)
  cloud <- cloud[cloud$np > 4, ]
  sill <- mean(c(max(cloud$gamma), median(cloud$gamma)))
  best <- NULL
  tried <- list(c("Exp", 0.5), c("Sph", 0.5), c("Mat", 1), c("Mat", 1.5), c("Mat", 2.5))
  for (one in tried) {
    start <- vgm(sill - min(cloud$gamma), one[1], 0.1 * diagonal, min(cloud$gamma), kappa = as.numeric(one[2]))
    model <- suppressWarnings(try(fit.variogram(cloud, start), silent = TRUE))
    if (inherits(model, "try-error") || any(model$psill < 0) || any(model$range < 0)) next
    error <- attr(model, "SSErr")
    if (is.null(best) || error < best$error) best <- list(model = model, error = error)
  }
  if (is.null(best)) list(model = vgm(0.5 * sill, "Exp", 0.1 * diagonal, 0.5 * sill)) else best
}

box_cox <- function(y, lambda) if (lambda == 0) log(y) else if (lambda == 1) y else (y^lambda - 1) / lambda

kriged <- function(train, there, trend) {
  model <- fitted_variogram(trend, train)$model
  found <- krige(trend, train, there, model, debug.level = 0)
  list(mean = found$var1.pred, sd = sqrt(pmax(found$var1.var, 1e-12)), model = model)
}

# The transform is that whose kriging predicts the training sites best, a tenth from the others.
krige_values <- function(train, there, trend) {
  raw <- train$value
  choices <- if (all(raw > 0)) c(0, 0.5, 1) else 1
  best <- NULL
  for (lambda in choices) {
    train$z <- box_cox(raw, lambda)
    model <- fitted_variogram(trend, train)$model
    own <- krige.cv(trend, train, model, nfold = 10, debug.level = 0, verbose = FALSE)
    score <- sum(dnorm(own$residual, 0, sqrt(own$var1.var), log = TRUE) + (lambda - 1) * log(abs(raw)), na.rm = TRUE)
    if (length(choices) == 1 || is.null(best) || score > best$score) best <- list(score = score, lambda = lambda)
  }
  train$z <- box_cox(raw, best$lambda)
  c(kriged(train, there, trend), lambda = best$lambda)
}

# -- mgcv

smooth_term <- function(n) {
  if (way == "tp") return(sprintf("s(x, y, bs = 'tp', k = %d)", min(100, n %/% 3)))
  sprintf("s(x, y, bs = 'so', k = film, xt = list(bnd = boundary, nmax = 80))")
}

gam_values <- function(train, there) {
  raw <- train$value
  best <- NULL
  for (lambda in if (all(raw > 0)) c(0, 0.5, 1) else 1) {
    train$z <- box_cox(raw, lambda)
    fitted <- gam(as.formula(paste("z ~", smooth_term(nrow(train)))), data = train, method = "REML", knots = knots)
    score <- -fitted$gcv.ubre + (lambda - 1) * sum(log(abs(raw)))
    if (is.null(best) || score > best$score) best <- list(score = score, lambda = lambda, fitted = fitted)
  }
  found <- predict(best$fitted, there, se.fit = TRUE)
  list(mean = as.numeric(found$fit), sd = sqrt(as.numeric(found$se.fit)^2 + best$fitted$sig2), lambda = best$lambda)
}

# Sites have an effect of their own (learned; none where a binomial suffices), unless one person was tested at each.
# A row each for positives and negatives: mgcv wants more rows than coefficients.
gam_prevalence <- function(train, there) {
  train$site <- factor(seq_len(nrow(train)))
  there$site <- train$site[1]
  own <- any(train$tested > 1)
  rows <- rbind(transform(train, hit = 1, w = positive), transform(train, hit = 0, w = tested - positive))
  rows <- rows[rows$w > 0, ]
  formula <- paste("hit ~", smooth_term(nrow(train)), if (own) "+ s(site, bs = 're')")
  fitted <- gam(as.formula(formula), data = rows, weights = w, family = binomial, method = "REML", knots = knots)
  found <- predict(fitted, there, se.fit = TRUE, exclude = if (own) "s(site)")
  variance <- if (own) tail(fitted$sp, 1) else Inf
  variance <- fitted$sig2 / unname(variance)
  list(mean = as.numeric(found$fit), sd = sqrt(as.numeric(found$se.fit)^2 + variance))
}

knots <- NULL
if (way == "soap") {
  rings <- read("rings.csv")
  knots <- read("knots.csv")
  boundary <- unname(lapply(split(rings, rings$ring), function(ring) list(x = ring$x, y = ring$y)))
  film <- pmax(8, pmin(20, sapply(boundary, function(ring) length(ring$x) %/% 3)))
}
if (way %in% c("tp", "soap")) suppressMessages(library(mgcv)) else suppressMessages({ library(sp); library(gstat) })
set.seed(1)
out <- list()
for (k in seq_len(ncol(folds))) {
  held <- folds[, k] == 1
  train <- sites[folds[, k] == 0, ]
  there <- sites[held, ]
  if (way %in% c("ordinary", "universal")) {
    if (kind == "prevalence") train$z <- log((train$positive + 0.5) / (train$tested - train$positive + 0.5))
    coordinates(train) <- ~ x + y
    coordinates(there) <- ~ x + y
    trend <- if (way == "ordinary") z ~ 1 else z ~ x + y
    if (kind == "values") train$z <- train$value
    found <- if (kind == "values") krige_values(train, there, trend) else kriged(train, there, trend)
  } else {
    found <- if (kind == "values") gam_values(train, there) else gam_prevalence(train, there)
  }
  lambda <- if (is.null(found$lambda)) 1 else found$lambda
  out[[k]] <- data.frame(fold = k - 1, site = which(held) - 1, mean = found$mean, sd = found$sd, lambda = lambda)
}
keep(do.call(rbind, out), "found.csv")
package <- if (way %in% c("tp", "soap")) "mgcv" else "gstat"
writeLines(c(format(sum(proc.time()[c("user.self", "sys.self")])), sprintf("%s %s", package, packageVersion(package))),
  file.path(folder, "note.txt"))

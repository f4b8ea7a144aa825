"""
title: Linear regression from scratch, features from np.random.normal
expect: collision
thread: https://github.com/OUCMachineLearning/OUCML/issues/24
fix_at: (none beside the marked)

Expectation, written first: np.random.normal gives float64 features and labels. The labels and the bias are made
float32 by hand, the weight is float32, the features were forgotten; torch.mm of Double features and a Float weight
raises at the first minibatch.
"""
import random

import numpy as np
import torch


def generate_data(num_inputs, num_examples, true_w, true_b):
    features = torch.from_numpy(np.random.normal(0, 1, (num_examples, num_inputs)))  # BORN
    labels = sum(w * features[:, i] for i, w in enumerate(true_w)) + true_b
    labels += torch.from_numpy(np.random.normal(0, 0.01, size=labels.size()))
    return features, labels.float()


def data_iter(batch_size, features, labels):
    num_examples = len(features)
    indices = list(range(num_examples))
    random.shuffle(indices)
    for i in range(0, num_examples, batch_size):
        j = torch.LongTensor(indices[i: min(i + batch_size, num_examples)])
        yield features.index_select(0, j), labels.index_select(0, j)


def linreg(X, w, b):
    return torch.mm(X, w) + b  # COLLIDES


def squared_loss(y_hat, y):
    return (y_hat - y.view(y_hat.size())) ** 2 / 2


def sgd(params, lr, batch_size):
    for param in params:
        param.data -= lr * param.grad / batch_size


def init_params(num_inputs):
    w = torch.tensor(np.random.normal(0, 0.01, (num_inputs, 1)), dtype=torch.float32)
    b = torch.zeros(1, dtype=torch.float32)
    w.requires_grad_(requires_grad=True)
    b.requires_grad_(requires_grad=True)
    return w, b


def train(features, labels, lr=0.03, num_epochs=3, batch_size=10):
    w, b = init_params(features.shape[1])
    net, loss = linreg, squared_loss
    for epoch in range(num_epochs):
        for X, y in data_iter(batch_size, features, labels):
            l = loss(net(X, w, b), y).sum()
            l.backward()
            sgd([w, b], lr, batch_size)
            w.grad.data.zero_()
            b.grad.data.zero_()
        with torch.no_grad():
            train_l = loss(net(features, w, b), labels)
        print("epoch %d, loss %f" % (epoch + 1, train_l.mean().item()))
    return w, b


if __name__ == "__main__":
    random.seed(24)
    np.random.seed(24)
    torch.manual_seed(24)
    true_w, true_b = [2, -3.4], 4.2
    features, labels = generate_data(2, 200, true_w, true_b)
    w, b = train(features, labels)
    print(true_w, [round(v, 2) for v in w.flatten().tolist()])
    print(true_b, round(b.item(), 2))
